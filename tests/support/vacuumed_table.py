"""A converted table with files outside its root, whose log another writer goes on with."""

from __future__ import annotations

import json
import time
from typing import Any

from airflow_hive_to_delta import VacuumResult, vacuum_external_files
from tests.support.lake import Lake

#: In milliseconds.
HOUR = 3_600_000


class VacuumedTable:
    """A converted table whose partition 2 lies in another bucket, with the files that it was given."""

    def __init__(self, lake: Lake, *names: str, target: str | None = None, **options: Any) -> None:
        self.lake = lake
        self.other = lake.add_bucket()
        lake.put("t/p=1/f", {"id": [1, 2]})
        for number, name in enumerate(names):
            lake.put(name, {"id": [10 + number]}, self.other)
        lake.glue_table(
            {"id": "bigint"}, {"p": "int"}, [(["1"], f"{lake.location()}/p=1"), (["2"], f"s3://{self.other}/")]
        )
        result = lake.convert((None, target and f"{lake.database}_{target}"), **options)
        assert result.success, result.error
        self.versions = 0

    def uri(self, name: str) -> str:
        return f"s3://{self.other}/{name}"

    def commit(self, *actions: dict[str, Any]) -> None:
        """Commit an entry as another writer."""
        self.versions += 1
        info = {"commitInfo": {"timestamp": 0, "operation": "DELETE", "engineInfo": "another"}}
        body = "\n".join(map(json.dumps, (info, *actions)))
        self.lake.put(f"t/_delta_log/{self.versions:020d}.json", body.encode())

    def remove(self, *paths: str, hours: float = 200) -> None:
        self.commit(*(removed(path, hours) for path in paths))

    def drop_partition(self) -> None:
        """Hive drops the partition in the other bucket, and as of any external table its files stay."""
        self.lake.glue.delete_partition(DatabaseName=self.lake.database, TableName="t", PartitionValues=["2"])

    def vacuum(self, *arguments: Any, **named: Any) -> VacuumResult:
        return vacuum_external_files(self.lake.spark, self.lake.location(), *arguments, **named)

    def there(self) -> set[str]:
        return {name for name in self.lake.objects() if "/_delta_log" not in name}


def removed(path: str, hours: float = 200, **more: Any) -> dict[str, Any]:
    moment = int(time.time() * 1000 - hours * HOUR)
    return {"remove": {"path": path, "deletionTimestamp": moment, "dataChange": True, **more}}


def added(path: str, **more: Any) -> dict[str, Any]:
    values = {"partitionValues": {"p": "2"}, "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": {"path": path, **values, **more}}
