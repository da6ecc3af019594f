"""The columns of the actions of a Delta log, as DDL: those that this package writes, and those that it reads."""

from __future__ import annotations

_STRINGS = "map<string,string>"
#: The descriptor of a deletion vector.
VECTOR_SCHEMA = "struct<storageType:string,pathOrInlineDv:string,offset:int,sizeInBytes:int,cardinality:bigint>"
#: Fields of files that other writers write: this package adds no deletion vectors and no row ids.
_FILE_FIELDS_OF_OTHERS = f"deletionVector:{VECTOR_SCHEMA},baseRowId:bigint,defaultRowCommitVersion:bigint"
#: The fields of each action that a checkpoint of this package holds.
_WRITTEN = {
    "txn": "appId:string,version:bigint,lastUpdated:bigint",
    "add": (
        f"path:string,partitionValues:{_STRINGS},size:bigint,modificationTime:bigint,dataChange:boolean,stats:string,"
        f"tags:{_STRINGS}"
    ),
    "remove": (
        "path:string,deletionTimestamp:bigint,dataChange:boolean,extendedFileMetadata:boolean,"
        f"partitionValues:{_STRINGS},size:bigint"
    ),
    "metaData": (
        f"id:string,name:string,description:string,format:struct<provider:string,options:{_STRINGS}>,"
        f"schemaString:string,partitionColumns:array<string>,configuration:{_STRINGS},createdTime:bigint"
    ),
    "protocol": "minReaderVersion:int,minWriterVersion:int,readerFeatures:array<string>,writerFeatures:array<string>",
}
_READ = {
    **_WRITTEN,
    "add": f"{_WRITTEN['add']},{_FILE_FIELDS_OF_OTHERS}",
    "remove": f"{_WRITTEN['remove']},{_FILE_FIELDS_OF_OTHERS}",
    "sidecar": "path:string,sizeInBytes:bigint,modificationTime:bigint",
}


def _ddl(actions: dict[str, str]) -> str:
    return ", ".join(f"{action} struct<{fields}>" for action, fields in actions.items())


#: A row of a checkpoint that this package writes: one action, in the column of its kind. Every field may be null.
WRITTEN_ACTIONS_SCHEMA = _ddl(_WRITTEN)
#: A row of a log entry or checkpoint of any writer, as the replay reads it; ``commitInfo`` stays JSON text.
READ_ACTIONS_SCHEMA = f"{_ddl(_READ)}, commitInfo string"
#: The latest action of each file of a log, by the file's canonical URI.
LATEST_ACTIONS_SCHEMA = (
    f"key string, version bigint, is_add boolean, path string, partition_values {_STRINGS}, size bigint, "
    f"modification_time bigint, stats string, tags {_STRINGS}, deletion_vector {VECTOR_SCHEMA}, "
    "deletion_timestamp bigint, extended_file_metadata boolean"
)
