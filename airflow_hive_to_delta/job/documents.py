"""The documents of a job, in one folder: its request, what it leaves of each table as that ends, and its whole result.

The folder lies under the staging root, where there is one. The job reads and writes it with its own identity.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location
from airflow_hive_to_delta.job.file_names import safe_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.storage.base import Storage

# No name that is made from a table's begins with an underscore.
REQUEST = "_request.json"
DONE = "_done.json"
#: How far the job is, written anew while it runs.
PROGRESS = "_progress.json"
#: Written by the task, of a job that ended without a result.
ENDED = "_ended.json"
_BEGUN = "_begun."


def begun_name(table: str) -> str:
    """The name of the document that says that the work on a table has begun."""
    return f"{_BEGUN}{safe_name(table)}.json"


def result_name(table: str) -> str:
    """The name of the document with the result of a table."""
    return f"{safe_name(table)}.json"


def is_result_name(name: str) -> bool:
    """Whether a file of the folder is the result of some table."""
    return name.endswith(".json") and not name.startswith("_")


def needs_spark(location: Location) -> bool:
    """Whether a document there can only be read through a session of Spark, as on HDFS, or by Unity Catalog."""
    from airflow_hive_to_delta.core.storage.databricks import needs_dbutils

    return location.scheme not in {"file", *S3_SCHEMES} or (location.scheme in S3_SCHEMES and needs_dbutils())


def read_document(location: Location, spark: SparkSession | None) -> dict[str, Any]:
    """Read a document.

    :raises MissingError: there is none.
    :raises ValueError: it is no JSON.
    :raises TypeError: it is no JSON object.
    """
    with _storage(location, spark).open(location) as source:
        document = json.loads(source.read())
    if not isinstance(document, dict):
        raise TypeError(f"it is of type {type(document).__name__}, expected a JSON object")
    return document


def put_document(location: Location, document: dict[str, Any], spark: SparkSession | None) -> None:
    """Write a document. One that is there already is left as it is: an earlier process of this job has written it."""
    _storage(location, spark).put_if_absent(location, io.BytesIO(json.dumps(document).encode()))


def replace_document(location: Location, document: dict[str, Any], spark: SparkSession | None) -> None:
    """Write a document in the place of one that is there. For a moment there may be none."""
    storage = _storage(location, spark)
    storage.delete(location)
    storage.put_if_absent(location, io.BytesIO(json.dumps(document).encode()))


def delete_document(location: Location, spark: SparkSession | None) -> None:
    _storage(location, spark).delete(location)


def _storage(location: Location, spark: SparkSession | None) -> Storage:
    # Imported here: the names above are for tasks too, which are parsed without boto3.
    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.storage.log_storage import storage_for

    return storage_for(location, spark, ConversionOptions())
