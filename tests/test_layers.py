"""The rules that hold the layers together (docs/architecture.md), and what the package says of itself."""

from __future__ import annotations

import ast
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import airflow_hive_to_delta
from airflow_hive_to_delta import engines
from airflow_hive_to_delta.engines import Engine
from tests.support.imports import imported_by
from tests.support.layers import LAYERS
from tests.support.order import LONGEST
from tests.support.project import PROJECT

PACKAGE = PROJECT / "airflow_hive_to_delta"
CORE = sorted((PACKAGE / "core").rglob("*.py"))
DISTRIBUTION = "airflow-hive-to-delta"

#: What a user is promised to find in the package itself.
PUBLIC_NAMES = {
    *("convert_table", "convert", "local_session"),
    *("Discovery", "GlueDiscovery", "UCDiscovery"),
    *("Listing", "S3Listing", "DatabricksListing", "InventoryListing"),
    *("TableInfo", "ParquetFileInfo", "ConversionResult", "VacuumResult", "ConversionOptions", "SyncOptions"),
    *("TablePlan", "VerifyResult", "SyncResult", "RollbackResult", "CutOverResult"),
    *("plan_migration", "verify_table", "sync_table", "vacuum_external_files", "rollback_table", "cut_over_table"),
    *("DeltaSink", "DeltaTableView", "VerificationError"),
    *("ConversionSummary", "create_summary", "run_parallel"),
    *("build_delta_schema_from_glue", "build_delta_schema_from_spark", "GLUE_TO_DELTA_TYPE_MAP"),
    *("generate_delta_log", "write_delta_log", "build_add_action"),
    *("HiveToDeltaError", "PermanentError", "TransientError"),
    *("GlueDiscoverOperator", "CatalogDiscoverOperator", "ListFilesOperator", "ConvertTableOperator"),
    *("PlanMigrationOperator", "VerifyTableOperator", "SyncTableOperator", "VacuumExternalFilesOperator"),
    *("RollbackTableOperator", "CutOverTableOperator", "MigrationReportOperator"),
    *("hive_to_delta_task_group", "hive_to_delta_sync_task_group"),
    *("Engine", "LocalSpark", "SparkSubmit", "SparkConnect", "EmrServerless", "GlueJob", "Databricks"),
    *("GlueSource", "CatalogSource", "GlueTarget", "CatalogTarget", "FileListing", "Staging", "PerTable"),
    *("SyncSettings", "hive_to_delta_campaign", "Lane", "Closing", "Wave", "UnitSize", "Retries", "CampaignStore"),
    *("GlueCampaignPlanOperator", "CatalogCampaignPlanOperator", "CampaignApprovalOperator", "PlanWaveOperator"),
    *("LargeUnitsOperator", "ConvertUnitOperator", "SyncUnitOperator", "CutOverUnitOperator", "RollbackUnitOperator"),
    *("CloseWaveOperator", "export_csv", "import_csv", "rebuild_states"),
    *("MeasureTablesOperator", "FinishPlanOperator", "InventorySizes", "Approval", "PlanSettings", "Units"),
}
#: What takes long to import. A DAG processor parses DAGs all the time.
HEAVY = {"pyspark", "pyarrow", "boto3", "botocore", "pandas", "numpy", "delta"}
#: Modules that pytest collects, which are for it alone to import.
OF_TESTS = re.compile(r"(^|\.)(test_\w+|conftest)$")
#: What Spark Connect does not have.
JVM_NAMES = {"_jvm", "_jsc", "_jsparkSession", "_jdf", "_sc", "sparkContext", "rdd"}
#: The modules that may use the JVM, each of which can do without it or raises an error that says so: for Hadoop's file
#: systems, the id of the streaming query that a batch belongs to, what only the JVM of Spark 3.5 has, and checkpoints
#: that Delta Lake writes.
MODULES_WITH_JVM = {
    "core/storage/hadoop.py", "core/spark/session.py", "core/spark/versions.py", "core/spark/delta_log.py",
}  # fmt: skip


def package_of(module: str) -> str:
    """The part of the package that a module belongs to, such as ``operators`` or ``core/delta``."""
    parts = module.split(".")[1:]
    return "/".join(parts[:2] if parts[:1] == ["core"] else parts[:1])


def modules_in(*folders: Path) -> list[str]:
    """The modules in folders of the package and in their subfolders, without the scripts, which run a job."""
    paths = {path for folder in folders for path in folder.rglob("*.py")} - {*(PACKAGE / "engines/scripts").iterdir()}
    return sorted(".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in paths)


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every import of a module, with its line: what is imported, with a dot at the beginning if it is relative."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def imports_upwards(package: Path) -> list[str]:
    """The imports that break LAYERS, in every module of a package and its subfolders, inside of functions too."""
    paths = {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in package.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    depth = {part: number for number, layer in enumerate(LAYERS) for part in layer}
    found = []
    for module, path in modules.items():
        own = package_of(module)
        for line, imported in imports_of(ast.parse(path.read_text())):
            if imported.startswith("."):
                found.append(f"{module}:{line} has a relative import of {imported}")
            elif imported.partition(".")[0] == package.name:
                other = package_of(imported if imported in modules else imported.rpartition(".")[0])
                if other != own and depth[own] >= depth[other]:
                    found.append(f"{module}:{line} imports {imported}")
    return found


def test_packages_depend_downwards_only() -> None:
    assert imports_upwards(PACKAGE) == []


def test_an_import_that_goes_upwards_is_found_in_a_subfolder(tmp_path: Path) -> None:
    copy = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for module in ("errors", "models"):  # the lowest ones, under TYPE_CHECKING too
        lowest = copy / "core" / f"{module}.py"
        lowest.write_text(lowest.read_text() + "\nif TYPE_CHECKING:\n    import airflow_hive_to_delta.core.results\n")
    planted = copy / "core" / "lifecycle" / "sync" / "changes.py"
    planted.write_text(planted.read_text() + "\n\ndef f():\n    from airflow_hive_to_delta.operators import tables\n")
    (copy / "core" / "delta" / "upwards.py").write_text("from airflow_hive_to_delta.core.catalogs import discovery\n")
    (copy / "core" / "schema" / "beside.py").write_text("from airflow_hive_to_delta.core.spark.sql import details\n")
    (copy / "core" / "schema" / "plain.py").write_text("import airflow_hive_to_delta.operators.tables.batches\n")
    (copy / "core" / "schema" / "relative.py").write_text("from ...operators import tables\n")
    assert [found.partition(":")[0].rpartition(".")[2] for found in sorted(imports_upwards(copy))] == [
        *("upwards", "errors", "changes", "models", "beside", "plain", "relative"),
    ]
    (copy / "elsewhere").mkdir()
    (copy / "elsewhere" / "module.py").write_text("from airflow_hive_to_delta.core import errors\n")
    with pytest.raises(KeyError, match="elsewhere"):
        imports_upwards(copy)


def test_importing_the_core_the_job_or_an_engine_imports_no_airflow() -> None:
    modules = modules_in(PACKAGE / "core", PACKAGE / "job", PACKAGE / "engines", PACKAGE / "campaigns")
    assert len(modules) > 80
    imported = imported_by("\n".join(f"import {module}" for module in modules))
    assert "airflow" not in imported
    assert "pyarrow" in imported, "the modules were imported indeed"


def test_the_core_the_job_and_campaigns_import_no_airflow_inside_of_functions_either() -> None:
    paths = [path for name in ("core", "job", "campaigns") for path in (PACKAGE / name).rglob("*.py")]
    found = [(str(path), name) for path in paths for _, name in imports_of(ast.parse(path.read_text()))]
    assert len({path for path, _ in found}) > 80
    assert [(path, name) for path, name in found if name.partition(".")[0] == "airflow"] == []


def test_no_folder_is_crowded() -> None:
    """Sixteen modules are what a reader takes in at a glance; more of them are several packages."""
    counts = Counter(path.parent.relative_to(PROJECT) for path in PACKAGE.rglob("*.py"))
    assert {str(folder): count for folder, count in counts.items() if count > 16} == {}


def test_importing_the_package_loads_no_heavy_library() -> None:
    imported = imported_by("import airflow_hive_to_delta\nassert 'convert' in dir(airflow_hive_to_delta)")
    assert "airflow_hive_to_delta" in imported
    assert not imported & {*HEAVY, "airflow"}


def test_importing_what_a_dag_is_made_of_loads_no_heavy_library(airflow_home: Path) -> None:
    names = ("operators", "task_groups", "triggers", "links", "engines", "campaigns")
    code = [f"import {name}" for name in modules_in(*(PACKAGE / name for name in names))]
    # Every part of Airflow loads the plugin.
    code += ["import airflow_hive_to_delta.plugins.campaign_page", "import airflow_hive_to_delta.provider_info"]
    code += ["from airflow_hive_to_delta import hive_to_delta_task_group"]
    imported = imported_by("\n".join(code))
    assert "airflow" in imported, "the modules were imported indeed"
    assert not imported & HEAVY


def test_the_provider_info_imports_nothing() -> None:
    assert "airflow" not in imported_by("import airflow_hive_to_delta.provider_info")


def test_the_job_knows_no_engine() -> None:
    found = [getattr(engines, name) for name in engines.__all__]
    names = {engine.__name__ for engine in found if Engine in engine.__mro__[1:]}
    assert {"LocalSpark", "GlueJob", "Databricks"} <= names
    for path in (PACKAGE / "job").rglob("*.py"):
        assert not [name for name in names if re.search(rf"\b{name}\b", path.read_text())], path


@pytest.mark.parametrize(
    "path",
    [path for path in CORE if str(path.relative_to(PACKAGE)) not in MODULES_WITH_JVM],
    ids=lambda path: str(path.relative_to(PACKAGE / "core")),
)
def test_the_core_uses_only_what_spark_connect_offers(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Attribute, ast.Constant)):
            named = node.attr if isinstance(node, ast.Attribute) else node.value
            assert named not in JVM_NAMES, f"{path.name}:{node.lineno} uses {named}"


def test_every_public_name_is_in_the_package() -> None:
    assert set(airflow_hive_to_delta.__all__) >= PUBLIC_NAMES
    assert set(airflow_hive_to_delta.__all__) <= set(dir(airflow_hive_to_delta))
    for name in airflow_hive_to_delta.__all__:
        assert getattr(airflow_hive_to_delta, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'covert'"):
        airflow_hive_to_delta.covert  # noqa: B018


def test_the_package_has_one_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    assert airflow_hive_to_delta.__version__ == project["version"] == installed_version(DISTRIBUTION)


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    wheel = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": [PACKAGE.name]}, "the whole folder, py.typed too"


def test_the_constraints_are_names_and_versions_only() -> None:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][\w.+]*", line)] == []
    names = [line.partition("==")[0] for line in lines]
    assert len(set(names)) == len(names)


def test_the_base_asks_for_no_spark_and_dev_for_what_the_tests_use() -> None:
    base, dev = ({canonicalize_name(asked.name) for asked in requirements_of(*extras)} for extras in ((), ("dev",)))
    assert {"apache-airflow", "apache-airflow-providers-amazon", "boto3", "pyarrow"} <= base
    assert not base & {"pyspark", "delta-spark", "pandas", "apache-airflow-providers-databricks"}
    assert dev > base | {"pyspark", "delta-spark", "pandas", "apache-airflow-providers-databricks"}
    assert "apache-airflow-providers-openlineage" in dev


def test_every_version_of_pyspark_is_that_of_the_embedded_engine() -> None:
    """pyspark-client overwrites files of pyspark, so that both need one version."""
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines)
    assert pinned["pyspark-client"] == pinned["pyspark"]
    for asked in (*requirements_of("local"), *requirements_of("connect"), *requirements_of("spark")):
        if asked.name in ("pyspark", "pyspark-client"):
            assert asked.specifier.contains(pinned["pyspark"])


def test_no_test_module_imports_another() -> None:
    """What tests share lies under tests/support; fixtures come from there by way of conftest.py."""
    found = []
    for path in (PROJECT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported += [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            found += [
                f"{path.name} imports {name}" for name in imported if re.search(r"(^|\.)(test_\w+|conftest)$", name)
            ]
    assert found == []


def test_the_modules_of_tests_that_begin_first_are_there() -> None:
    assert [name for name in LONGEST if not (PROJECT / "tests" / name).is_file()] == [], "renamed or removed"


def test_the_constraints_pin_every_dependency_as_it_is_installed() -> None:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines)
    needed = installed_dependencies(*requirements_of("dev"))
    assert len(needed) > 100
    assert {name: version for name, version in needed.items() if pinned.get(name) != version} == {}


def requirements_of(*extras: str) -> list[Requirement]:
    """What this package asks for with these extras, as pyproject.toml has it, its own extras among them resolved."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    found: list[Requirement] = []
    for asked in map(Requirement, lines):
        found += requirements_of(*asked.extras) if asked.name == DISTRIBUTION else [asked]
    return found


def installed_dependencies(*requirements: Requirement) -> dict[str, str]:
    """The installed distributions that requirements ask for, with what they ask for, and their versions."""
    seen: set[tuple[str, str]] = set()
    found: dict[str, str] = {}
    left = [*requirements]
    while left:
        wanted = left.pop()
        for extra in {"", *wanted.extras}:
            name = canonicalize_name(wanted.name)
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                found[name] = distribution(name).version
            except PackageNotFoundError:  # asked for by an extra or a platform that is not this one
                continue
            asked = map(Requirement, requires(name) or [])
            left += [other for other in asked if not other.marker or other.marker.evaluate({"extra": extra})]
    return found
