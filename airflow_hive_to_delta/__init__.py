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
    "convert": f"{_CORE}.lifecycle.convert",
    "convert_table": f"{_CORE}.lifecycle.convert",
    "Discovery": f"{_CORE}.catalogs.discovery",
    "GlueDiscovery": f"{_CORE}.catalogs.discovery",
    "UCDiscovery": f"{_CORE}.catalogs.discovery",
    "Listing": f"{_CORE}.listing.base",
    "S3Listing": f"{_CORE}.listing.s3",
    "DatabricksListing": f"{_CORE}.listing.spark",
    "InventoryListing": f"{_CORE}.listing.inventory",
    "SyncOptions": f"{_CORE}.options",
    "ConversionOptions": f"{_CORE}.options",
    "ConversionResult": f"{_CORE}.results",
    "ParquetFileInfo": f"{_CORE}.models",
    "TableInfo": f"{_CORE}.models",
    "CutOverResult": f"{_CORE}.results",
    "RollbackResult": f"{_CORE}.results",
    "SyncResult": f"{_CORE}.results",
    "TablePlan": f"{_CORE}.results",
    "VacuumResult": f"{_CORE}.results",
    "VerifyResult": f"{_CORE}.results",
    "plan_migration": f"{_CORE}.lifecycle.plan",
    "verify_table": f"{_CORE}.lifecycle.verify",
    "sync_table": f"{_CORE}.lifecycle.sync.sync",
    "DeltaSink": f"{_CORE}.delta.sink",
    "DeltaTableView": f"{_CORE}.delta.table_view",
    "vacuum_external_files": f"{_CORE}.lifecycle.vacuum.vacuum",
    "rollback_table": f"{_CORE}.lifecycle.rollback.rollback",
    "cut_over_table": f"{_CORE}.lifecycle.cut_over",
    "ConversionSummary": f"{_CORE}.runner",
    "create_summary": f"{_CORE}.runner",
    "run_parallel": f"{_CORE}.runner",
    "GLUE_TO_DELTA_TYPE_MAP": f"{_CORE}.schema.types",
    "build_delta_schema_from_glue": f"{_CORE}.schema.translation",
    "build_delta_schema_from_spark": f"{_CORE}.schema.translation",
    "build_add_action": f"{_CORE}.delta.log.commits",
    "generate_delta_log": f"{_CORE}.delta.log.commits",
    "write_delta_log": f"{_CORE}.delta.log.commits",
    "HiveToDeltaError": f"{_CORE}.errors",
    "PermanentError": f"{_CORE}.errors",
    "TransientError": f"{_CORE}.errors",
    "VerificationError": f"{_CORE}.results",
    "local_session": f"{_CORE}.spark.session",
    "EmrServerless": f"{_PACKAGE}.engines",
    "Engine": f"{_PACKAGE}.engines",
    "GlueJob": f"{_PACKAGE}.engines",
    "Databricks": f"{_PACKAGE}.engines",
    "LocalSpark": f"{_PACKAGE}.engines",
    "SparkConnect": f"{_PACKAGE}.engines",
    "SparkSubmit": f"{_PACKAGE}.engines",
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
    "CampaignApprovalOperator": f"{_PACKAGE}.operators.campaigns.approval",
    "CatalogCampaignPlanOperator": f"{_PACKAGE}.operators.campaigns.plan",
    "GlueCampaignPlanOperator": f"{_PACKAGE}.operators.campaigns.plan",
    "MeasureTablesOperator": f"{_PACKAGE}.operators.campaigns.plan",
    "FinishPlanOperator": f"{_PACKAGE}.operators.campaigns.plan",
    "PlanWaveOperator": f"{_PACKAGE}.operators.campaigns.wave",
    "LargeUnitsOperator": f"{_PACKAGE}.operators.campaigns.wave",
    "CloseWaveOperator": f"{_PACKAGE}.operators.campaigns.wave",
    "ConvertUnitOperator": f"{_PACKAGE}.operators.campaigns.units",
    "SyncUnitOperator": f"{_PACKAGE}.operators.campaigns.units",
    "CutOverUnitOperator": f"{_PACKAGE}.operators.campaigns.units",
    "RollbackUnitOperator": f"{_PACKAGE}.operators.campaigns.units",
    "CampaignStore": f"{_PACKAGE}.campaigns.store",
    "Retries": f"{_PACKAGE}.campaigns.states",
    "UnitSize": f"{_PACKAGE}.campaigns.waves",
    "Wave": f"{_PACKAGE}.campaigns.waves",
    "export_csv": f"{_PACKAGE}.campaigns.csv_files",
    "import_csv": f"{_PACKAGE}.campaigns.csv_files",
    "rebuild_states": f"{_PACKAGE}.campaigns.rebuild",
    "Approval": f"{_PACKAGE}.task_groups.campaign_config",
    "Closing": f"{_PACKAGE}.task_groups.campaign_config",
    "InventorySizes": f"{_PACKAGE}.task_groups.campaign_config",
    "Lane": f"{_PACKAGE}.task_groups.campaign_config",
    "PlanSettings": f"{_PACKAGE}.task_groups.campaign_config",
    "Units": f"{_PACKAGE}.task_groups.campaign_config",
    "hive_to_delta_campaign": f"{_PACKAGE}.task_groups.campaign",
    "CatalogSource": f"{_PACKAGE}.task_groups.config",
    "CatalogTarget": f"{_PACKAGE}.task_groups.config",
    "FileListing": f"{_PACKAGE}.task_groups.config",
    "GlueSource": f"{_PACKAGE}.task_groups.config",
    "GlueTarget": f"{_PACKAGE}.task_groups.config",
    "PerTable": f"{_PACKAGE}.task_groups.config",
    "Staging": f"{_PACKAGE}.task_groups.config",
    "SyncSettings": f"{_PACKAGE}.task_groups.config",
    "hive_to_delta_task_group": f"{_PACKAGE}.task_groups.migration",
    "hive_to_delta_sync_task_group": f"{_PACKAGE}.task_groups.sync",
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
