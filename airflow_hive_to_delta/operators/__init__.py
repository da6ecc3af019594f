"""The tasks of a migration, before, during and after it. Importing them loads no PySpark, pyarrow or boto3."""

from __future__ import annotations

from airflow_hive_to_delta.operators.convert import ConvertTableOperator
from airflow_hive_to_delta.operators.cut_over import CutOverTableOperator
from airflow_hive_to_delta.operators.discover import CatalogDiscoverOperator, GlueDiscoverOperator
from airflow_hive_to_delta.operators.list_files import ListFilesOperator
from airflow_hive_to_delta.operators.plan import PlanMigrationOperator
from airflow_hive_to_delta.operators.report import MigrationReportOperator
from airflow_hive_to_delta.operators.rollback import RollbackTableOperator
from airflow_hive_to_delta.operators.sync import SyncTableOperator
from airflow_hive_to_delta.operators.vacuum import VacuumExternalFilesOperator
from airflow_hive_to_delta.operators.verify import VerifyTableOperator

__all__ = [
    "CatalogDiscoverOperator",
    "ConvertTableOperator",
    "CutOverTableOperator",
    "GlueDiscoverOperator",
    "ListFilesOperator",
    "MigrationReportOperator",
    "PlanMigrationOperator",
    "RollbackTableOperator",
    "SyncTableOperator",
    "VacuumExternalFilesOperator",
    "VerifyTableOperator",
]
