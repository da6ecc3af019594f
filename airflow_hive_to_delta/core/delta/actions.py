"""The actions of a Delta log, as this package writes them: one line of JSON each (rules 7 to 11, 25)."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from airflow_hive_to_delta.core.errors import PermanentError

DISTRIBUTION = "airflow-hive-to-delta"
try:
    _VERSION = version(DISTRIBUTION)
except PackageNotFoundError:  # a source tree on the path, as on a cluster that got the package as a zip
    _VERSION = "unknown"
#: The field of a ``commitInfo`` for what only this package reads.
OWN_FIELD = "hiveToDelta"
#: The operation of a sync in the log.
SYNC = "STREAMING UPDATE"
#: The parameter of an operation that was made from a list of files made elsewhere, such as an S3 Inventory report: the
#: time of the list, in milliseconds since the epoch.
LISTED_AT = "filesListedAt"
#: The metric of a sync for the number of partitions that it left to the next one.
WAITING = "numWaitingPartitions"
#: The writer of an entry, as ``DESCRIBE HISTORY`` shows it.
ENGINE_INFO = f"{DISTRIBUTION}/{_VERSION}"
_FEATURES = {"columnMapping", "timestampNtz", "typeWidening"}
# Properties of Delta that are settings only. Every other one needs a table feature, which ALTER TABLE turns on together
# with the protocol. Without its feature no writer would obey the property.
_SETTINGS = re.compile(
    r"delta\.(appendOnly|autoOptimize(\.\w+)?|checkpointInterval|checkpoint\.writeStatsAs(Json|Struct)"
    r"|compatibility\.symlinkFormatManifest\.enabled|dataSkipping(NumIndexedCols|StatsColumns)"
    r"|(deletedFile|log|sample|setTransaction)RetentionDuration|enableExpiredLogCleanup|isolationLevel"
    r"|parquet\.compression\.codec|randomizeFilePrefixes|randomPrefixLength|targetFileSize|tuneFileSizesForRewrites)"
)
# Properties that need a feature, each with the text by which the schema shows that the table has it.
_SHOWN_BY_FIELDS = {
    "delta.columnMapping.mode": '"delta.columnMapping.id":',
    "delta.columnMapping.maxColumnId": '"delta.columnMapping.id":',
    "delta.enableTypeWidening": '"delta.typeChanges":',
}


@dataclass(frozen=True)
class Metadata:
    """The table's ``metaData``, as its latest entry has it."""

    schema: dict[str, Any]
    partition_columns: list[str]
    configuration: dict[str, str]
    description: str | None
    #: Made once, and never changed (rule 9).
    id: str = ""
    name: str | None = None
    created_time: int | None = None


def metadata_of(action: Mapping[str, Any]) -> Metadata:
    """The contents of a ``metaData`` action of any writer."""
    return Metadata(
        schema=json.loads(action["schemaString"]),
        partition_columns=list(action["partitionColumns"]),
        configuration=dict(action.get("configuration") or {}),
        description=action.get("description"),
        id=str(action["id"]),
        name=action.get("name"),
        created_time=action.get("createdTime"),
    )


_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def action_line(action: Mapping[str, Any]) -> str:
    """An action as one line of an entry. It is ASCII, so that no reader takes a character in it for a line break."""
    return _ENCODER.encode(action)


def commit_info(
    *,
    number_of_files: int,
    partition_columns: Sequence[str],
    collect_stats: bool,
    txn_id: str,
    catalog_table: str | None = None,
    user_metadata: str | None = None,
    timestamp: int | None = None,
    listed_at: int | None = None,
    number_of_bytes: int | None = None,
    run_id: str | None = None,
) -> dict[str, Any]:
    """The ``commitInfo`` of a conversion. The values of its operation's parameters are JSON in strings (rule 7).

    :param collect_stats: whether the files have statistics.
    :param txn_id: a UUID by which the writer recognises its entry.
    :param catalog_table: the full name of the Hive table.
    :param user_metadata: a text of the user's own.
    :param timestamp: the time of the commit, in milliseconds since the epoch; now when it is not given.
    :param listed_at: the time of a list of files that was made elsewhere, in milliseconds since the epoch.
    :param run_id: the run that converts the table.
    """
    parameters = {
        "numFiles": str(number_of_files),
        "partitionedBy": json.dumps(list(partition_columns), separators=(",", ":")),
        "collectStats": "true" if collect_stats else "false",
        "sourceFormat": "parquet",
    }
    if catalog_table is not None:
        parameters["catalogTable"] = catalog_table
    if listed_at is not None:
        parameters[LISTED_AT] = str(listed_at)
    own = {
        **({} if number_of_bytes is None else {"numBytes": number_of_bytes}),
        **({} if run_id is None else {"runId": run_id}),
    }
    return {
        "commitInfo": {
            "timestamp": _now() if timestamp is None else timestamp,
            "operation": "CONVERT",
            "operationParameters": parameters,
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "operationMetrics": {"numConvertedFiles": str(number_of_files)},
            **({} if user_metadata is None else {"userMetadata": user_metadata}),
            **({OWN_FIELD: own} if own else {}),
            "engineInfo": ENGINE_INFO,
            "txnId": txn_id,
        }
    }


def sync_commit_info(
    *,
    output_mode: str,
    app_id: str,
    run_version: int,
    added: int,
    removed: int,
    txn_id: str,
    in_commit_timestamp: Mapping[str, int],
    listed_at: int | None = None,
    waiting_partitions: int = 0,
) -> dict[str, Any]:
    """The ``commitInfo`` of a sync. The values of its operation's parameters are JSON in strings (rule 7).

    :param app_id: the application of the entry's ``txn``, and ``run_version`` its version.
    :param in_commit_timestamp: what :func:`~.writable.in_commit_timestamp` returns.
    :param listed_at: the time of a list of files that was made elsewhere, in milliseconds since the epoch.
    :param waiting_partitions: how many partitions were left to the next sync.
    """
    return {
        "commitInfo": {
            **in_commit_timestamp,
            "timestamp": _now(),
            "operation": SYNC,
            "operationParameters": {
                "outputMode": output_mode.capitalize(),
                "queryId": app_id,
                "epochId": str(run_version),
                **({} if listed_at is None else {LISTED_AT: str(listed_at)}),
            },
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "operationMetrics": {
                "numAddedFiles": str(added),
                "numRemovedFiles": str(removed),
                **({WAITING: str(waiting_partitions)} if waiting_partitions else {}),
            },
            "engineInfo": ENGINE_INFO,
            "txnId": txn_id,
        }
    }


def protocol_action(features: Sequence[str]) -> dict[str, Any]:
    """The lowest protocol with these features: 1/2, 2/5 for column mapping alone, else 3/7 (rules 10, 11, 29).

    :raises PermanentError: a conversion does not know one of the features.
    """
    if unknown := sorted(set(features) - _FEATURES):
        raise PermanentError(
            f"Unknown table features: {', '.join(unknown)}; expected some of {', '.join(sorted(_FEATURES))}"
        )
    if not features:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    if set(features) == {"columnMapping"}:
        return {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(set(features)),
            # From version 7 on the features that writer version 2 implies have to be named.
            "writerFeatures": sorted({"appendOnly", "invariants", *features}),
        }
    }


def metadata_action(
    schema: Mapping[str, Any],
    partition_columns: Sequence[str],
    *,
    configuration: Mapping[str, str] | None = None,
    description: str | None = None,
    name: str | None = None,
    table_id: str | None = None,
    created_time: int | None = None,
) -> dict[str, Any]:
    """The ``metaData`` of a table, with a new id if none is given (rules 9 and 25).

    :raises PermanentError: a property needs a table feature that the schema does not show.
    """
    schema_string = json.dumps(schema, separators=(",", ":"))
    _check_configuration(configuration or {}, schema_string)
    metadata = {
        "id": table_id or str(uuid.uuid4()),
        "name": name,
        "description": description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string,
        "partitionColumns": list(partition_columns),
        "configuration": dict(configuration or {}),
        "createdTime": _now() if created_time is None else created_time,
    }
    return {"metaData": {key: value for key, value in metadata.items() if value is not None}}


def changed_metadata_action(
    metadata: Metadata, schema: Mapping[str, Any], partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> dict[str, Any]:
    """The ``metaData`` of an existing table with another schema and other properties. All else stays (rule 9)."""
    action = metadata_action(
        schema,
        partition_columns,
        description=metadata.description,
        name=metadata.name,
        table_id=metadata.id,
        created_time=metadata.created_time,
    )
    action["metaData"]["configuration"] = dict(configuration)
    return action


def txn_action(app_id: str, version: int) -> dict[str, Any]:
    """The ``txn`` by which a run that is repeated is recognised (rule 8)."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": _now()}}


def add_action(
    path: str,
    partition_values: Mapping[str, str | None],
    size: int,
    modification_time: int | None,
    stats: str | None,
) -> dict[str, Any]:
    """The ``add`` of one file.

    :param path: the URL-encoded path, as :func:`~airflow_hive_to_delta.core.storage.uri.add_path` makes it.
    :param modification_time: in milliseconds since the epoch; an unknown one is written as 0.
    :param stats: the statistics as JSON text.
    """
    add = {
        "path": path,
        "partitionValues": dict(partition_values),
        "size": size,
        "modificationTime": modification_time or 0,
        "dataChange": True,
    }
    return {"add": add if stats is None else {**add, "stats": stats}}


def remove_action(
    path: str,
    partition_values: Mapping[str, str | None] | None,
    size: int | None,
    deletion_vector: Mapping[str, Any] | None,
    deletion_timestamp: int,
) -> dict[str, Any]:
    """The ``remove`` of one file.

    :param path: the path of its ``add``, byte for byte. The deletion vector too is that of the ``add``.
    :param deletion_timestamp: in milliseconds since the epoch.
    """
    remove: dict[str, Any] = {"path": path, "deletionTimestamp": deletion_timestamp, "dataChange": True}
    if partition_values is not None and size is not None:
        remove |= {"extendedFileMetadata": True, "partitionValues": dict(partition_values), "size": size}
    if deletion_vector is not None:
        remove["deletionVector"] = {key: value for key, value in deletion_vector.items() if value is not None}
    return {"remove": remove}


def features_of(delta_type: Any) -> set[str]:
    """The table features that readers of this type or schema need."""
    if delta_type == "timestamp_ntz":
        return {"timestampNtz"}
    if not isinstance(delta_type, Mapping):
        return set()
    found: set[str] = set()
    for field in delta_type.get("fields", ()):
        found |= features_of(field["type"])
        found |= {"columnMapping"} if "delta.columnMapping.id" in field["metadata"] else set()
        found |= {"typeWidening"} if "delta.typeChanges" in field["metadata"] else set()
    return found.union(*(features_of(delta_type.get(part)) for part in ("elementType", "keyType", "valueType")))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _check_configuration(configuration: Mapping[str, str], schema_string: str) -> None:
    for key in configuration:
        shown = _SHOWN_BY_FIELDS.get(key)
        if key.startswith("delta.") and not _SETTINGS.fullmatch(key) and not (shown and shown in schema_string):
            raise PermanentError(
                f"The table property {key} needs a table feature that a conversion does not turn on. Leave it out, and "
                "set it with ALTER TABLE … SET TBLPROPERTIES when the table is converted"
            )
