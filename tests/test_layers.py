"""The rules that hold the layers together (design.md), and what the package says of itself."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import airflow_hive_to_delta
from tests.conftest import PROJECT

PACKAGE = PROJECT / "airflow_hive_to_delta"
CORE = sorted((PACKAGE / "core").glob("*.py"))
DISTRIBUTION = "airflow-hive-to-delta"

#: What a user is promised to find in the package itself.
PUBLIC_NAMES = {
    *("convert_table", "convert", "local_session"),
    *("Discovery", "GlueDiscovery", "UCDiscovery"),
    *("Listing", "S3Listing", "DatabricksListing", "InventoryListing"),
    *("TableInfo", "ParquetFileInfo", "ConversionResult", "VacuumResult", "ConversionOptions"),
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
    *("hive_to_delta_task_group", "hive_to_delta_sync_task_group", "Engine", "LocalSpark"),
    *("GlueSource", "CatalogSource", "FileListing", "Target", "Staging", "PerTable"),
}
#: What Spark Connect does not have.
JVM_NAMES = {"_jvm", "_jsc", "_jsparkSession", "_jdf", "_sc", "sparkContext", "rdd"}
#: The two doors to a JVM, each of which says plainly when there is none: Hadoop's file systems, and the id of the
#: streaming query that a batch belongs to.
JVM_DOORS = {"hadoop_storage", "session"}


def imported_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after it ran the code."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_the_core_and_the_job_never_import_airflow() -> None:
    modules = [f"airflow_hive_to_delta.core.{path.stem}" for path in CORE if path.stem != "__init__"]
    assert len(modules) > 15
    modules += ["airflow_hive_to_delta.job", "airflow_hive_to_delta.engines"]
    imported = imported_by("\n".join(f"import {module}" for module in modules))
    assert "airflow" not in imported
    assert "pyarrow" in imported, "the modules were imported indeed"


def test_importing_the_package_loads_no_heavy_library() -> None:
    imported = imported_by("import airflow_hive_to_delta\nassert 'convert' in dir(airflow_hive_to_delta)")
    assert "airflow_hive_to_delta" in imported
    assert not imported & {"pyspark", "pyarrow", "boto3", "botocore", "pandas", "numpy", "airflow", "delta"}


@pytest.mark.parametrize("path", [path for path in CORE if path.stem not in JVM_DOORS], ids=lambda path: path.stem)
def test_the_core_uses_only_what_spark_connect_offers(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        named = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else None
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


def test_the_constraints_pin_every_dependency_as_it_is_installed() -> None:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines)
    needed = installed_dependencies(f"{DISTRIBUTION}[dev]")
    assert len(needed) > 100
    assert {name: version for name, version in needed.items() if pinned.get(name) != version} == {}


def installed_dependencies(requirement: str) -> dict[str, str]:
    """The installed distributions that a requirement asks for, with what they ask for, and their versions."""
    seen: set[tuple[str, str]] = set()
    found: dict[str, str] = {}
    left = [Requirement(requirement)]
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
    del found[DISTRIBUTION]
    return found
