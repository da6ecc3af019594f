"""Cut-over in Glue: one name, the Delta definition in the place of the Hive one, and all of the old one kept."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from airflow_hive_to_delta import ConversionOptions, GlueDiscovery
from airflow_hive_to_delta.core.catalogs.registration import Target
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, TransientError
from airflow_hive_to_delta.core.lifecycle.cut_over import cut_over_table
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.lifecycle.rollback.rollback import rollback_table
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.crashes import Killed, at_every_step, killed_at
from tests.support.lake import PARQUET, Lake

pytestmark = pytest.mark.slow

#: All that a definition can say, as crawlers, Hive and people leave it.
DEFINITION: dict[str, Any] = {
    "Name": "t",
    "Description": "orders, by day",
    "Owner": "hadoop",
    "Retention": 7,
    "TableType": "EXTERNAL_TABLE",
    "PartitionKeys": [{"Name": "p", "Type": "int", "Comment": "the day"}],
    "Parameters": {
        "EXTERNAL": "TRUE",
        "classification": "parquet",
        "numRows": "17",
        "transient_lastDdlTime": "1700000000",
        "parquet.compression": "SNAPPY",
        "team": "sales",
    },
}


@pytest.fixture
def table(lake: Lake) -> TableInfo:
    """A converted table with a partition in another bucket."""
    other = lake.add_bucket()
    lake.put("t/p=1/f", {"id": [1, 2]})
    lake.put("f", {"id": [3]}, other)
    storage = {**PARQUET, "Location": lake.location(), "Columns": [{"Name": "id", "Type": "bigint", "Comment": "one"}]}
    lake.glue.create_table(DatabaseName=lake.database, TableInput={**DEFINITION, "StorageDescriptor": storage})
    for value, location in (("1", f"{lake.location()}/p=1"), ("2", f"s3://{other}/")):
        lake.glue.create_partition(
            DatabaseName=lake.database,
            TableName="t",
            PartitionInput={"Values": [value], "StorageDescriptor": {**PARQUET, "Location": location}},
        )
    assert lake.convert().success
    return discovered(lake)


def lake_input(lake: Lake) -> dict[str, Any]:
    """The definition in the form that Glue takes back."""
    found = definition(lake)
    return {field: found[field] for field in (*DEFINITION, "StorageDescriptor")}


def discovered(lake: Lake) -> TableInfo:
    (found,) = GlueDiscovery(lake.database).discover()
    return found


def definition(lake: Lake) -> dict[str, Any]:
    """All fields of a table in Glue that can be set."""
    found = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    return {
        field: found[field] for field in lake.glue.meta.service_model.shape_for("TableInput").members if field in found
    }


def partitions(lake: Lake) -> list[Any]:
    found = lake.glue.get_partitions(DatabaseName=lake.database, TableName="t")["Partitions"]
    return sorted((p["Values"], p["StorageDescriptor"]["Location"]) for p in found)


def test_one_name_is_delta_and_then_the_old_table_again(lake: Lake, table: TableInfo) -> None:
    """It is cut over and rolled back twice, with a conversion in between."""
    old, old_partitions = definition(lake), partitions(lake)
    for _ in range(2):
        result = cut_over_table(lake.spark, table)
        assert (result.status, result.version, result.source_table) == ("cut_over", 0, table.qualified_name)
        assert result.kept_definition == f"{lake.location()}/_delta_log/_hive_to_delta/definition-0.json"
        new = definition(lake)
        assert {field: new[field] for field in ("Name", "Description", "Owner", "Retention", "PartitionKeys")} == {
            field: old[field] for field in ("Name", "Description", "Owner", "Retention", "PartitionKeys")
        }
        assert new["Parameters"] == {
            "EXTERNAL": "TRUE",
            "classification": "delta",
            "spark.sql.sources.provider": "delta",
            "table_type": "DELTA",
            "team": "sales",
        }
        assert new["StorageDescriptor"]["Location"] == lake.location()
        assert new["StorageDescriptor"]["Columns"] == [{"Name": "id", "Type": "bigint", "Comment": "one"}]
        assert partitions(lake) == old_partitions
        assert discovered(lake).format == "delta"
        assert cut_over_table(lake.spark, discovered(lake)).status == "already_cut_over"
        undone = rollback_table(lake.spark, discovered(lake))
        assert (undone.restored, undone.dropped, undone.notes) == ([table.qualified_name], [], [])
        assert (definition(lake), partitions(lake)) == (old, old_partitions)
        assert lake.convert().status == "converted"


def test_a_managed_table_is_external_after_its_cut_over(lake: Lake, table: TableInfo) -> None:
    managed = {**lake_input(lake), "TableType": "MANAGED_TABLE"}
    managed["Parameters"] = {k: v for k, v in managed["Parameters"].items() if k != "EXTERNAL"}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=managed)
    assert "is a managed table" in lake.convert().notes[0]
    cut_over_table(lake.spark, discovered(lake))
    assert (definition(lake)["TableType"], definition(lake)["Parameters"]["EXTERNAL"]) == ("EXTERNAL_TABLE", "TRUE")


def test_a_cut_over_name_that_was_registered_too_is_restored_and_not_dropped(lake: Lake, table: TableInfo) -> None:
    old = definition(lake)
    cut_over_table(lake.spark, table)
    records = Records(S3Storage(ConversionOptions()), parse_location(lake.location()))
    records.keep_registration(Target(None, lake.database, "t", "glue"), None)
    undone = rollback_table(lake.spark, table)
    assert (undone.restored, undone.dropped) == ([table.qualified_name], [])
    assert definition(lake) == old


def test_ended_at_every_step(lake: Lake, table: TableInfo) -> None:
    """The process ends before and after each request of the cut-over, and of the rollback after it."""
    old, old_partitions = definition(lake), partitions(lake)
    kept = "t/_delta_log/_hive_to_delta/definition-0.json"

    def hive_again() -> TableInfo:
        lake.glue.update_table(DatabaseName=lake.database, TableInput=old)
        lake.s3.delete_object(Bucket=lake.bucket, Key=kept)
        return table

    def check(_: TableInfo) -> None:
        assert discovered(lake).format == "delta"
        assert cut_over_table(lake.spark, table).status == "already_cut_over"
        assert lake.s3.get_object(Bucket=lake.bucket, Key=kept)

    def cut_over(table: TableInfo) -> None:
        cut_over_table(lake.spark, table)

    assert at_every_step(hive_again, cut_over, check) == ["put_if_absent on S3Storage", "Glue's update_table"]

    cut_over(table)
    objects = {
        name: lake.s3.get_object(Bucket=name.partition("/")[0], Key=name.partition("/")[2])["Body"].read()
        for name in lake.objects()
    }
    delta = definition(lake)

    def cut_over_again() -> TableInfo:
        for name, body in objects.items():
            lake.s3.put_object(Bucket=name.partition("/")[0], Key=name.partition("/")[2], Body=body)
        lake.glue.update_table(DatabaseName=lake.database, TableInput=delta)
        return table

    def is_hive(_: TableInfo) -> None:
        assert (definition(lake), partitions(lake)) == (old, old_partitions)

    steps = at_every_step(cut_over_again, lambda table: rollback_table(lake.spark, table), is_hive)
    assert "Glue's update_table" in steps


# --- a definition that changes ------------------------------------------------------------------------------------


def test_a_definition_that_was_kept_and_not_replaced_makes_room_for_a_newer_one(lake: Lake, table: TableInfo) -> None:
    with killed_at(0, after=True), pytest.raises(Killed):
        cut_over_table(lake.spark, table)
    newer = {**definition(lake), "Description": "changed since"}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=newer)
    cut_over_table(lake.spark, table)
    rollback_table(lake.spark, table)
    assert definition(lake) == newer


def test_a_definition_that_a_crawler_turned_back_is_kept_beside_the_original(lake: Lake, table: TableInfo) -> None:
    original = definition(lake)
    assert cut_over_table(lake.spark, table).kept_definition.endswith("/definition-0.json")
    crawled = {**original, "Description": "", "Owner": "crawler", "Parameters": {"UPDATED_BY_CRAWLER": "c"}}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=crawled)
    assert cut_over_table(lake.spark, table).kept_definition.endswith("/definition-1.json")
    assert cut_over_table(lake.spark, table).kept_definition.endswith("/definition-1.json")
    undone = rollback_table(lake.spark, table)
    assert undone.restored == [table.qualified_name]
    assert "earlier definitions too, which were not restored: definition-0.json" in undone.notes[0]
    assert definition(lake) == crawled
    moved = f"{parse_location(undone.log_moved_to).key}/_hive_to_delta"
    for number, expected in enumerate((original, crawled)):
        body = lake.s3.get_object(Bucket=lake.bucket, Key=f"{moved}/definition-{number}.json")["Body"].read()
        kept = json.loads(body)["definition"]
        assert {field: kept[field] for field in expected} == expected


def test_a_kept_definition_that_somebody_changed_is_not_restored(lake: Lake, table: TableInfo) -> None:
    kept = parse_location(cut_over_table(lake.spark, table).kept_definition)
    body = lake.s3.get_object(Bucket=lake.bucket, Key=kept.key)["Body"].read()
    document, delta = json.loads(body), definition(lake)
    storage = {**document["definition"]["StorageDescriptor"], "Location": "s3://elsewhere/t"}
    for change in (
        {"definition": {**document["definition"], "Name": "another"}},
        {"definition": {**document["definition"], "StorageDescriptor": storage}},
        {"definition": {**document["definition"], "StorageDescriptor": "elsewhere"}},
        {"definition": "t"},
        {"database": None},
    ):
        lake.s3.put_object(Bucket=lake.bucket, Key=kept.key, Body=json.dumps({**document, **change}))
        with pytest.raises(PermanentError, match=r"definition-0\.json is not as this package writes it"):
            rollback_table(lake.spark, table)
        assert definition(lake) == delta
    lake.s3.put_object(Bucket=lake.bucket, Key=kept.key, Body=body)
    assert rollback_table(lake.spark, table).restored == [table.qualified_name]


def test_a_definition_that_changes_between_keeping_and_replacing_is_not_replaced(
    lake: Lake, table: TableInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = {**definition(lake), "Description": "changed meanwhile"}
    keep = Records.keep

    def keep_and_change(self: Records, name: str, document: dict[str, Any]) -> bool:
        done = keep(self, name, document)
        lake.glue.update_table(DatabaseName=lake.database, TableInput=newer)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Records, "keep", keep_and_change)
        with pytest.raises(TransientError, match=r"was changed in Glue while it was to be replaced \(Description\)"):
            cut_over_table(lake.spark, table)
    assert definition(lake) == newer
    assert cut_over_table(lake.spark, table).status == "cut_over"


def test_the_version_that_is_replaced_is_passed_to_glue(
    lake: Lake, table: TableInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]["VersionId"]
    asked: list[dict[str, Any]] = []
    client = aws.glue_client(table.region)
    update = client.update_table

    def record(**request: Any) -> Any:
        asked.append(request)
        return update(**request)

    monkeypatch.setattr(client, "update_table", record)
    cut_over_table(lake.spark, table)
    assert [request["VersionId"] for request in asked] == [version]


# --- what is refused -----------------------------------------------------------------------------------------------


def test_only_tables_of_glue(lake: Lake) -> None:
    sources: dict[Literal["spark", "none"], str] = {"spark": "comes from Spark", "none": "comes from no catalog"}
    for source, said in sources.items():
        table = TableInfo("t", lake.location(), database=lake.database, source=source)
        with pytest.raises(PermanentError, match=said):
            cut_over_table(lake.spark, table)


def test_only_converted_tables(lake: Lake) -> None:
    lake.put("t/f", {"id": [1]})
    lake.glue_table({"id": "bigint"})
    with pytest.raises(MissingError, match="holds no Delta log"):
        cut_over_table(lake.spark, discovered(lake))
    lake.spark.range(2).write.format("delta").mode("append").save(lake.location())
    before = definition(lake)
    with pytest.raises(PermanentError, match="was not made by a conversion of this package"):
        cut_over_table(lake.spark, discovered(lake))
    assert definition(lake) == before


def test_only_the_parquet_table_at_this_location(lake: Lake, table: TableInfo) -> None:
    old = definition(lake)
    elsewhere = {**old["StorageDescriptor"], "Location": f"{lake.location()}2"}
    orc = {**old["StorageDescriptor"], "InputFormat": "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
           "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.orc.OrcSerde"}}  # fmt: skip
    for storage, said in ((elsewhere, r"is parquet at s3://\S+/t2"), (orc, "is orc at")):
        changed = {**old, "StorageDescriptor": storage}
        lake.glue.update_table(DatabaseName=lake.database, TableInput=changed)
        with pytest.raises(PermanentError, match=said):
            cut_over_table(lake.spark, table)
        assert definition(lake) == changed
    lake.glue.delete_table(DatabaseName=lake.database, Name="t")
    with pytest.raises(MissingError, match="Reading the table"):
        cut_over_table(lake.spark, table)


def test_a_log_made_from_another_table_at_the_same_location(lake: Lake, table: TableInfo) -> None:
    lake.glue.create_table(DatabaseName=lake.database, TableInput={**definition(lake), "Name": "u"})
    _, other = GlueDiscovery(lake.database).discover()
    with pytest.raises(PermanentError, match=rf"was made from {lake.database}.t, not from {lake.database}.u"):
        cut_over_table(lake.spark, other)


def test_a_table_that_somebody_else_made_delta_says_that_nothing_is_kept(lake: Lake, table: TableInfo) -> None:
    changed = definition(lake)
    changed["Parameters"] = {**changed["Parameters"], "table_type": "DELTA"}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=changed)
    result = cut_over_table(lake.spark, table)
    assert (result.status, result.kept_definition) == ("already_cut_over", "")
    assert result.notes
    # And the rollback leaves it as it is.
    assert rollback_table(lake.spark, table).restored == []
    assert definition(lake) == changed


def test_a_name_that_is_gone_is_not_made_again(lake: Lake, table: TableInfo) -> None:
    cut_over_table(lake.spark, table)
    lake.glue.delete_table(DatabaseName=lake.database, Name="t")
    undone = rollback_table(lake.spark, table)
    assert undone.restored == []
    assert "is gone from Glue and was not made again" in undone.notes[0]
