"""What the tasks of a DAG push to XCom: the documents that the operators push, of tables with four files each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_hive_to_delta.campaigns.waves import UnitSize, Wave, plan_wave
from airflow_hive_to_delta.core.models import ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.results import ConversionResult, VerifyResult
from airflow_hive_to_delta.job.manifests import FileList
from airflow_hive_to_delta.report.outcomes import TableOutcome
from benchmarks.campaigns.simulation import Simulation

#: By key.
Pushed = dict[str, Any]
#: Of the task without the ids of its groups, and its index in a mapped one.
PushedBy = Callable[[str, int], Pushed]

_JOB_PAGE = "https://spark.example.com/history/application_1763460000000_0042/jobs"
_STAGING = "s3://lake-staging/hive-to-delta"
_COLUMNS = 20
_FILES = 4


@dataclass(frozen=True)
class Shape:
    """A DAG for some tables, and what its tasks push."""

    #: The source of the DAG, without its imports.
    source: str
    #: The tables that one run of it takes.
    tables: int
    pushed_by: PushedBy


def mapped_group(tables: int) -> Shape:
    """One mapped group over all tables: list, convert and verify for each of them."""
    source = (
        f"hive_to_delta_task_group(source=GlueSource('sales'), staging={_STAGING!r}, "
        "target=GlueTarget('delta'), verify='counts', aws_conn_id=None)"
    )
    found = [_table(number) for number in range(tables)]

    def pushed_by(task: str, index: int) -> Pushed:
        match task:
            case "discover":
                return {"return_value": [table.to_dict() for table in found], "unmatched": [], "left_out": []}
            case "list_files":
                return {"return_value": [_files(found[index])], "outcomes": []}
            case "convert":
                result = _converted(found[index])
                return {"return_value": [result], "outcomes": [_outcome(result, "convert", index)], "job": _JOB_PAGE}
            case "verify":
                result = _verified(found[index])
                return {"return_value": [result], "outcomes": [_outcome(result, "verify", index)], "job": _JOB_PAGE}
            case "report":
                return {"return_value": {"tables": tables, "page": f"{_STAGING}/report.html"}}
        raise LookupError(f"The task {task} is not known")

    return Shape(source, tables, pushed_by)


def campaign(tables: int) -> Shape:
    """One wave of a campaign over as many of the tables as a wave takes, with units of the default size."""
    source = (
        f"hive_to_delta_campaign('lake', source=GlueSource('sales'), staging={_STAGING!r}, "
        "target=GlueTarget('delta'), aws_conn_id=None)"
    )
    simulation = Simulation(tables, wave=Wave(), size=UnitSize())
    wave = plan_wave(
        simulation.store(), "manual.lake.convert", wave=simulation.wave, size=simulation.size, now=simulation.time
    )
    assert wave is not None
    by_state = {"verified": {"tables": wave.tables, "bytes": wave.bytes}}

    def pushed_by(task: str, index: int) -> Pushed:  # noqa: ARG001
        match task:
            case "plan":
                counts = {"planned": tables}
                return {"return_value": {"tables": tables, "by_state": counts, "plan": f"{_STAGING}/plan.csv"}}
            case "plan_wave":
                return {"return_value": wave.packed}
            case "large_units":
                return {"return_value": wave.alone}
            case "packed" | "alone":
                return {"return_value": {"verified": simulation.size.tables}, "job": _JOB_PAGE}
            case "close_wave":
                numbers = {"tables": wave.tables, "failed": 0, "left": 0, "report": f"{_STAGING}/report.html"}
                text = f"Campaign lake: a wave of {wave.tables} tables has ended. In all: {wave.tables} verified."
                message = {"name": "lake", "phase": "convert", "by_state": by_state, "text": text}
                return {"return_value": numbers, "report": {**message, **numbers, "failed_tables": []}}
        raise LookupError(f"The task {task} is not known")

    return Shape(source, wave.tables, pushed_by)


SHAPES: dict[str, Callable[[int], Shape]] = {"mapped-group": mapped_group, "campaign": campaign}


def _table(number: int) -> TableInfo:
    columns = [{"Name": f"column_{each}", "Type": "bigint", "Comment": ""} for each in range(_COLUMNS)]
    return TableInfo(
        f"t{number:05d}", f"s3://lake/sales/t{number:05d}", columns=columns, database="sales", source="glue"
    )


def _files(table: TableInfo) -> dict[str, Any]:
    names = [f"{table.location}/part-{number:05d}.snappy.parquet" for number in range(_FILES)]
    files = [ParquetFileInfo(name, 134_217_728).to_dict() for name in names]
    return FileList(table.qualified_name, _FILES, _FILES * 134_217_728, files=files, log_version=-1).to_dict()


def _converted(table: TableInfo) -> dict[str, Any]:
    name = table.qualified_name
    counts: dict[str, Any] = {"file_count": _FILES, "byte_count": _FILES * 134_217_728, "row_count": 4_000_000}
    made = ConversionResult(name, f"delta.{table.name}", True, "converted", location=table.location, **counts)
    return made.to_dict()


def _verified(table: TableInfo) -> dict[str, Any]:
    counts: dict[str, Any] = {"file_count": _FILES, "byte_count": _FILES * 134_217_728, "row_count": 4_000_000}
    return VerifyResult(table.qualified_name, table.location, "counts", True, 0, **counts).to_dict()


def _outcome(result: dict[str, Any], action: Any, index: int) -> dict[str, Any]:
    return {**TableOutcome.of_result(result, action).to_dict(), "map_index": index}
