"""The tasks of a migration: discover, list, convert, report. Importing them loads no PySpark, pyarrow or boto3."""

from __future__ import annotations

from airflow_hive_to_delta.operators.convert import ConvertTableOperator
from airflow_hive_to_delta.operators.discover import CatalogDiscoverOperator, GlueDiscoverOperator
from airflow_hive_to_delta.operators.list_files import ListFilesOperator
from airflow_hive_to_delta.operators.report import MigrationReportOperator

__all__ = [
    "CatalogDiscoverOperator",
    "ConvertTableOperator",
    "GlueDiscoverOperator",
    "ListFilesOperator",
    "MigrationReportOperator",
]
