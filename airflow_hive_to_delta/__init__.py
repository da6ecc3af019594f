"""Hive tables in Parquet become Delta Lake tables in place.

The public names are imported when they are first used: a DAG processor that imports this package loads neither
PySpark nor pyarrow nor boto3.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PACKAGE = "airflow_hive_to_delta"
_CORE = f"{_PACKAGE}.core"
_NAMES = {
    "convert": f"{_CORE}.converter",
    "convert_table": f"{_CORE}.converter",
    "Discovery": f"{_CORE}.discovery",
    "GlueDiscovery": f"{_CORE}.discovery",
    "UCDiscovery": f"{_CORE}.discovery",
    "Listing": f"{_CORE}.listing",
    "S3Listing": f"{_CORE}.listing",
    "DatabricksListing": f"{_CORE}.listing",
    "InventoryListing": f"{_CORE}.listing",
    "ConversionOptions": f"{_CORE}.models",
    "ConversionResult": f"{_CORE}.models",
    "ParquetFileInfo": f"{_CORE}.models",
    "TableInfo": f"{_CORE}.models",
    "CutOverResult": f"{_CORE}.models",
    "RollbackResult": f"{_CORE}.models",
    "SyncResult": f"{_CORE}.models",
    "TablePlan": f"{_CORE}.models",
    "VacuumResult": f"{_CORE}.models",
    "VerifyResult": f"{_CORE}.models",
    "plan_migration": f"{_CORE}.plan",
    "verify_table": f"{_CORE}.verify",
    "sync_table": f"{_CORE}.sync",
    "DeltaSink": f"{_CORE}.sink",
    "DeltaTableView": f"{_CORE}.table",
    "vacuum_external_files": f"{_CORE}.vacuum",
    "rollback_table": f"{_CORE}.rollback",
    "cut_over_table": f"{_CORE}.cutover",
    "ConversionSummary": f"{_CORE}.parallel",
    "create_summary": f"{_CORE}.parallel",
    "run_parallel": f"{_CORE}.parallel",
    "GLUE_TO_DELTA_TYPE_MAP": f"{_CORE}.schema",
    "build_delta_schema_from_glue": f"{_CORE}.schema",
    "build_delta_schema_from_spark": f"{_CORE}.schema",
    "build_add_action": f"{_CORE}.delta_log",
    "generate_delta_log": f"{_CORE}.delta_log",
    "write_delta_log": f"{_CORE}.delta_log",
    "HiveToDeltaError": f"{_CORE}.errors",
    "PermanentError": f"{_CORE}.errors",
    "TransientError": f"{_CORE}.errors",
    "VerificationError": f"{_CORE}.errors",
    "local_session": f"{_CORE}.session",
    "Engine": f"{_PACKAGE}.engines",
    "LocalSpark": f"{_PACKAGE}.engines",
    "CatalogDiscoverOperator": f"{_PACKAGE}.operators.discover",
    "GlueDiscoverOperator": f"{_PACKAGE}.operators.discover",
    "ListFilesOperator": f"{_PACKAGE}.operators.list_files",
    "ConvertTableOperator": f"{_PACKAGE}.operators.convert",
    "PlanMigrationOperator": f"{_PACKAGE}.operators.plan",
    "VerifyTableOperator": f"{_PACKAGE}.operators.verify",
    "SyncTableOperator": f"{_PACKAGE}.operators.sync",
    "VacuumExternalFilesOperator": f"{_PACKAGE}.operators.vacuum",
    "RollbackTableOperator": f"{_PACKAGE}.operators.rollback",
    "CutOverTableOperator": f"{_PACKAGE}.operators.cut_over",
    "MigrationReportOperator": f"{_PACKAGE}.operators.report",
    "CatalogSource": f"{_PACKAGE}.task_group",
    "FileListing": f"{_PACKAGE}.task_group",
    "GlueSource": f"{_PACKAGE}.task_group",
    "PerTable": f"{_PACKAGE}.task_group",
    "Staging": f"{_PACKAGE}.task_group",
    "Target": f"{_PACKAGE}.task_group",
    "hive_to_delta_task_group": f"{_PACKAGE}.task_group",
    "hive_to_delta_sync_task_group": f"{_PACKAGE}.task_group",
}

__all__ = sorted(_NAMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
