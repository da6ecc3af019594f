"""Bad input: an error that says what was found, what was expected and what to do, and nothing is touched.

Every test compares all that lies around the table, or in its bucket, before and after.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import (
    ConversionOptions,
    DatabricksListing,
    ParquetFileInfo,
    TableInfo,
    UCDiscovery,
    convert,
    convert_table,
)
from airflow_hive_to_delta.core.errors import PermanentError
from tests.support.discoveries import KnownTables
from tests.support.oracle import assert_same, delta_at
from tests.support.tables import convert_folder, files_of, snapshot, write_parquet

FILES = "file_path string, size long"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with one good file in it."""
    write_parquet(tmp_path / "t" / "f", {"id": [1, 2]})
    return tmp_path / "t"


@pytest.fixture
def refused(spark: SparkSession, tmp_path: Path) -> Callable[..., str]:
    """Convert, expect a refusal that fits ``reason``, and compare the folder around the table. Returns the message."""

    def refused(
        root: Path, reason: str, files: Any = None, target: tuple = (None, None, None), **arguments: Any
    ) -> str:
        listed = files_of(spark, root) if files is None else files
        before = snapshot(tmp_path)
        with pytest.raises(PermanentError) as caught:
            convert_table(spark, listed, str(root), *target, **arguments)
        assert snapshot(tmp_path) == before
        assert re.search(reason, str(caught.value)), str(caught.value)
        return str(caught.value)

    return refused


# --- The list of files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("file_path string", r"size is missing in the file list, which has file_path. Expected .* size \(an integer"),
        ("path string, size long", r"file_path is missing in the file list, which has path, size"),
        ("file_path binary, size long", r"file_path is of the type binary .* Expected file_path \(string\)"),
        ("file_path string, size string", r"size is of the type string"),
        ("file_path string, size double", r"size is of the type double"),
        ("file_path string, size long, last_modified string", r"last_modified is of the type string.*timestamp"),
        ("size string", r"file_path is missing and size is of the type string"),
    ],
)
def test_a_list_with_other_columns(spark, root, refused, schema, reason):
    refused(root, reason, spark.createDataFrame([], schema))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (None, r"file_path is null, expected an absolute path or a URI such as s3://bucket/file"),
        ("", r"file_path is , expected"),
        ("t/f", r"file_path is t/f, expected an absolute path"),
        ("ftp://host/t/f", r"'ftp://host/t/f' has the scheme 'ftp', expected one of abfs"),
        ("{root}/../t/f", r"/\.\./t/f' has an empty, '\.' or '\.\.' segment"),
        ("{root}//f", r"//f' has an empty"),
        ("file://elsewhere{root}/f", r"/elsewhere/.*/t/f' has an empty"),
        ("s3:///t/f", r"'s3:///t/f' names no bucket"),
        ("s3://key:secret@bucket/t/f", r"carries user information; take it out"),
    ],
)
def test_rule_52_a_path_where_no_file_can_be(spark, root, refused, path, reason):
    path = path and path.format(root=root)
    message = refused(root, reason, spark.createDataFrame([(path, 10)], FILES))
    assert "secret" not in message


@pytest.mark.parametrize(
    ("size", "reason"), [(None, "The size of .*/t/f is null, expected its bytes"), (-1, "The size of .*/t/f is -1")]
)
def test_a_size_that_is_none(spark, root, refused, size, reason):
    refused(root, reason, spark.createDataFrame([(str(root / "f"), size)], FILES))


@pytest.mark.parametrize(
    ("spelling", "inside"), [("{}", True), ("file:{}", True), ("file://{}", False), ("file://localhost{}", False)]
)
def test_rule_4_the_same_file_twice(spark, tmp_path, root, refused, spelling, inside):
    file = root / "f" if inside else write_parquet(tmp_path / "away" / "f", {"id": [3]})
    files = [(str(file), file.stat().st_size), (spelling.format(file), file.stat().st_size)]
    refused(root, r"same file more than once: .*\bf\. List each file once", spark.createDataFrame(files, FILES))


# --- The files --------------------------------------------------------------------------------------------------


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def encrypted(data: bytes) -> bytes:
    return data[:-4] + b"PARE"


def csv(_: bytes) -> bytes:
    return b"id,name\n1,x\n"


def magic_only(_: bytes) -> bytes:
    return b"PAR1"


def long_footer(data: bytes) -> bytes:
    return data[:-8] + (2**31).to_bytes(4, "little") + b"PAR1"


def zeroed_footer(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length] + b"\0" * length + data[-8:]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (cut, r"/t/f is not a Parquet file: it ends in b'.*', expected b'PAR1'. Restore the file"),
        (csv, r"/t/f is not a Parquet file: it ends in b'1,x\\n', expected b'PAR1'"),
        (encrypted, r"/t/f has an encrypted footer.* take it out of the table"),
        (magic_only, r"The footer of .*/t/f cannot be read"),
        (long_footer, r"The footer of .*/t/f cannot be read"),
        (zeroed_footer, r"The footer of .*/t/f cannot be read"),
    ],
)
def test_a_file_that_is_not_parquet_any_more(root, refused, spoil, reason):
    write_parquet(root / "good", {"id": [3]})
    (root / "f").write_bytes(spoil((root / "f").read_bytes()))
    refused(root, reason)


def test_a_file_that_is_not_there_or_not_what_was_listed(spark, root, refused):
    size = os.path.getsize(root / "f")
    for name, listed, reason in (
        ("gone", size, r"gone does not exist. List the files again"),
        ("f", size + 1, rf"/t/f has {size} bytes, but {size + 1} were listed.* List the files again"),
        ("f", size - 1, rf"/t/f has {size} bytes, but {size - 1} were listed"),
        ("", size, r"/t cannot be read: Is a directory"),
    ):
        path = str(root / name).rstrip("/")
        refused(root, reason, spark.createDataFrame([(path, listed)], FILES))


def test_the_first_of_many_bad_files_is_named_and_all_are_counted(root, refused):
    for name in ("a", "b"):
        (root / name).write_bytes(b"not parquet")
    refused(root, r"/t/a is not a Parquet file.* \(2 of 3 files cannot be part of the table\)")


# --- Partitions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folders", "columns", "reason"),
    [
        ("p=1", ["p", "q"], r"Expecting 2 partition column\(s\): \[p, q\], but found 1 partition column\(s\): \[p\] "
                            r"from parsing the file name: .*/p=1/f"),
        ("p=1/q=2", ["p"], r"Expecting 1 partition column\(s\): \[p\], but found 2 partition column\(s\): \[p, q\]"),
        ("", ["p"], r"Expecting 1 partition column\(s\): \[p\], but found 0 partition column\(s\): \[\]"),
        ("q=1", ["p"], r"\[p\], but found 1 partition column\(s\): \[q\]"),
        ("p=1/P=2", ["p"], r"found 2 partition column\(s\): \[p, P\]"),
        ("p=x", {"p": "int"}, r"The partition value 'x' of the column p is not of its type integer, in the file "
                              r".*/p=x/f\. Give the column the type"),
        ("p=300", {"p": "tinyint"}, r"'300' of the column p is not of its type byte"),
        ("p=2024-02-30", {"p": "date"}, r"'2024-02-30' of the column p is not of its type date"),
        ("p=1.234", {"p": "decimal(4,2)"}, r"'1.234' of the column p is not of its type decimal\(4,2\)"),
        ("p=1", {"p": "array<int>"}, r"partition column p of t is of the type array<int>, expected a primitive one"),
        ("p=1", {"p": "number"}, r"p.*'number'"),
        ("p=1", ["p", "P"], r"The columns p and P have the same name but for its case"),
        ("p=1/q=2", None, r"/p=1/q=2/f lies in folders for p, q, .* values would be lost\. Pass "
                          r"partition_columns=\{'p': 'string', 'q': 'string'\} .*allow_undeclared_partitions=True"),
        ("id=1/p=1", None, r"lies in folders for p, which"),
    ],
)  # fmt: skip
def test_rules_19_to_24_folders_that_do_not_fit(tmp_path, refused, folders, columns, reason):
    root = tmp_path / "t"
    write_parquet(root / folders / "f", {"id": [1]})
    refused(root, reason, partition_columns=columns)


def test_folders_outside_the_table_that_do_not_fit(spark, tmp_path, root, refused):
    away = write_parquet(tmp_path / "away" / "p=1" / "f", {"id": [1]}).parent
    files = files_of(spark, away)
    refused(root, r"Expecting 1 partition column\(s\): \[q\], but found 1 .* \[p\]", files, partition_columns=["q"])
    refused(root, r"/away/p=1/f lies in folders for p, which", files)


def test_folders_that_are_not_declared_and_the_option_that_leaves_them_out(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "p=x" / "f", {"id": [1]})
    original = spark.read.option("recursiveFileLookup", "true").parquet(str(root))
    convert_folder(spark, root, options=ConversionOptions(allow_undeclared_partitions=True))
    assert_same(spark, original, delta_at(spark, root))


def test_a_folder_whose_key_is_a_column_of_the_file_is_accepted(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "Id=1" / "f", {"id": [1]})
    assert convert_folder(spark, root).row_count == 1


def test_a_partition_timezone_that_nobody_knows(root, refused):
    reason = r"partition_timezone is 'Mars/Olympus', expected a zone such as UTC or Europe/Berlin"
    refused(root, reason, options=ConversionOptions(partition_timezone="Mars/Olympus"))


# --- Columns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        (["x"], [1], r"The column c is string in the file .*/a and bigint in the file .*/b\. .* Rewrite the files"),
        ([1.5], [1], r"c is double in the file .*/a and bigint in the file .*/b"),
        ([True], [1], r"c is boolean in the file .*/a and bigint"),
        ([b"x"], ["x"], r"c is binary in the file .*/a and string in the file .*/b"),
        ([{"x": 1}], [{"x": "y"}], r"The column c\.x is bigint in the file .*/a and string in the file .*/b"),
        ([[1]], [["x"]], r"The column c\.element is bigint in the file .*/a and string"),
        ([[1]], [1], r"c is array in the file .*/a and bigint in the file .*/b"),
        ([[1]], [{"x": 1}], r"c is array in the file .*/a and struct"),
        # pyarrow gives a column of nulls the physical type int32, and Spark reads it by that.
        (pa.nulls(1), ["x"], r"c is int in the file .*/a and string in the file .*/b"),
    ],
)  # fmt: skip
def test_rule_29_files_that_disagree_about_a_type(tmp_path, refused, one, other, reason):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1], "c": one})
    write_parquet(root / "b", {"id": [1], "c": other})
    refused(root, reason)


def test_rule_12_files_that_disagree_about_case(tmp_path, refused):
    root = tmp_path / "t"
    write_parquet(root / "a", {"s": [{"Id": 1}]})
    write_parquet(root / "b", {"s": [{"ID": 1}]})
    refused(root, r"s\.Id in .*/a, s\.ID in .*/b\. .* pass allow_name_case_conflict=True if every reader ignores case")


def test_rule_12_one_file_with_two_names_that_differ_in_case(tmp_path, refused):
    root = tmp_path / "t"
    write_parquet(root / "a", {"Id": [1], "ID": [2]})
    options = ConversionOptions(allow_name_case_conflict=True)
    refused(root, r"The file .*/a has the columns Id and ID, which Delta takes for one\. Rewrite", options=options)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([1], pa.timestamp("ns")), r"INT64 \(Timestamp.*nanoseconds.*timestamp in microseconds"),
        (pa.array([1], pa.time32("ms")), r"INT32 \(Time"),
        (pa.array([1], pa.time64("us")), r"INT64 \(Time"),
        (pa.array([b"0123456789abcdef"], pa.uuid()), r"FIXED_LEN_BYTE_ARRAY \(UUID"),
        (pa.array([1.5], pa.float16()), r"FIXED_LEN_BYTE_ARRAY \(Float16"),
        (pa.array([1], pa.decimal256(50, 0)), r"FIXED_LEN_BYTE_ARRAY \(Decimal\(precision=50"),
    ],
    ids=lambda values: str(values.type) if isinstance(values, pa.Array | pa.ExtensionArray) else "",
)
def test_parquet_types_that_spark_cannot_read(tmp_path, refused, values, reason):
    root = tmp_path / "t"
    write_parquet(root / "f", {"id": [1], "odd": pa.ListArray.from_arrays([0, 1], values)})
    refused(root, rf"The column odd\.list\.element of .*/f is of the Parquet type {reason}")


def test_a_table_without_columns(tmp_path, spark, refused):
    root = tmp_path / "t"
    write_parquet(root / "p=1" / "f", {"p": [1]})
    refused(root, r"no columns beside its partition columns \(p\)", partition_columns=["p"])
    nothing = spark.createDataFrame([], FILES)
    refused(root, r"no columns beside its partition columns \(none\).* Declare its columns", nothing)


# --- What a catalog says ----------------------------------------------------------------------------------------


class Found(KnownTables):
    """A discovery and a listing of one's own: one table, and the files that lie under its location."""

    def __init__(self, table: TableInfo, values: Mapping[str, str | None] | None = None) -> None:
        super().__init__(table)
        self.values = values

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        paths = [path for path in sorted(Path(table.location).rglob("*")) if path.is_file()]
        return [ParquetFileInfo(str(path), path.stat().st_size, self.values) for path in paths]


def columns(**types: str) -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind} for name, kind in types.items()]


ID = columns(id="bigint")


@pytest.mark.parametrize(
    ("table", "values", "reason"),
    [
        ({"columns": columns(id="string")}, None,
         r"The column id is string in the catalog and bigint in the file .*/t/f\. .* Give the column the type bigint"),
        ({"columns": columns(id="int")}, None,
         r"id is int in the catalog and bigint in the file .*/t/f"),
        ({"columns": columns(id="double")}, None,
         r"id is double in the catalog and bigint in the file"),
        ({"columns": columns(id="array<bigint>")}, None,
         r"id is array<bigint> in the catalog and bigint in the file"),
        ({"columns": columns(id="bigint", u="uniontype<int,string>")}, None,
         r"u.*uniontype<int,string>"),
        ({"columns": columns(id="bigint", u="blob")}, None,
         r"u.*'blob'"),
        ({"columns": columns(id="bigint", ID="bigint")}, None,
         r"The columns id and ID have the same name but for its case.* Rename one"),
        ({"columns": [{"Name": "id"}]}, None,
         r"expected a Name and a Type"),
        ({"columns": ID, "partition_keys": ["p"], "partition_types": {"p": "array<int>"}}, {"p": "1"},
         r"partition column p of db\.t is of the type array<int>, expected a primitive one"),
        ({"columns": ID, "partition_keys": ["p"]}, {"q": "1"},
         r"Expecting 1 partition column\(s\): \[p\], but found 1 partition column\(s\): \[q\] in the values given for"),
        ({"columns": ID, "partition_keys": ["p"], "partition_types": {"p": "int"}}, {"p": "x"},
         r"The partition value 'x' of the column p is not of its type integer, in the file .*/t/f"),
        ({"columns": ID, "bucket_columns": ["id"]}, None,
         r"db\.t is bucketed by id, which Delta tables cannot be\. Pass ConversionOptions\(allow_bucketed=True\)"),
        ({"columns": ID, "format": "delta"}, None,
         r"db\.t is a Delta table in its catalog, but file://.*/t holds no Delta log"),
        ({"columns": ID, "location": "relative/t"}, None,
         r"the location of db\.t is 'relative/t', expected an absolute path"),
        ({"columns": ID, "location": "s3://me:secret@bucket/t"}, None,
         r"the location of db\.t .*carries user information"),
    ],
)  # fmt: skip
def test_a_table_of_a_catalog(spark, tmp_path, root, table, values, reason):
    found = Found(TableInfo(**{"name": "t", "database": "db", "location": str(root), **table}), values)
    before = snapshot(tmp_path)
    (result,) = convert(spark, found, found, None, None, progress=False)
    assert (result.source_table, result.success, result.status) == ("db.t", False, "refused")
    assert re.search(reason, result.error or ""), result.error
    assert "secret" not in (result.error or "")
    assert result.retryable is False
    assert snapshot(tmp_path) == before


def test_bytes_under_a_catalogs_string_and_the_option_that_reads_them_as_text(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "f", {"s": [b"x", None]})
    write_parquet(root / "g", {"s": ["y", None]})
    found = Found(TableInfo("t", str(root), columns=columns(s="string")))
    before = snapshot(tmp_path)
    (result,) = convert(spark, found, found, None, None, progress=False)
    assert re.search(r"s is string in the catalog and binary in the file .*/f\. .* binary_as_string=True", result.error)
    assert snapshot(tmp_path) == before
    original = spark.read.schema("s string").parquet(str(root))
    options = ConversionOptions(binary_as_string=True)
    (result,) = convert(spark, found, found, None, None, options=options, progress=False)
    assert any("s (binary as string)" in note for note in result.notes)
    assert_same(spark, original, delta_at(spark, root))


def test_rule_45_what_the_metastore_has_beside_parquet_tables(spark, database, tmp_path):
    root = tmp_path / "t"
    spark.sql(f"CREATE TABLE {database}.orc (id INT) STORED AS ORC LOCATION '{root / 'orc'}'")
    spark.sql(f"INSERT INTO {database}.orc VALUES (1)")
    spark.sql(f"CREATE VIEW {database}.view AS SELECT * FROM {database}.orc")
    before = snapshot(tmp_path)
    orc, view = convert(
        spark, UCDiscovery([f"spark_catalog.{database}.*"]), DatabricksListing(), None, None, progress=False
    )
    assert (orc.status, view.status) == ("refused", "refused")
    assert orc.error == (
        "CONVERT TO DELTA only supports parquet tables, but you are trying to convert a orc source: "
        f"spark_catalog.{database}.orc"
    )
    assert re.search(rf"{database}\.view is a view and has no files\. Convert the tables it reads", view.error or "")
    assert snapshot(tmp_path) == before


# --- Targets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ((None, None, "t"), r"catalog None, schema None, table 't'; expected a schema and a table"),
        (("spark_catalog", None, "t"), r"schema None"),
        (("spark_catalog", "db", ""), r"table ''"),
        (("", "db", "t"), r"catalog ''.* or None for all three to leave the table unregistered"),
        (("spark_catalog", "db", "${env}"), r"holds '\$\{', which Spark SQL takes for a variable; rename it"),
    ],
)
def test_a_name_that_is_no_target(root, refused, target, reason):
    refused(root, reason, target=target)


def test_a_target_in_glue_needs_a_location_on_s3(root, refused):
    options = ConversionOptions(register_in="glue")
    refused(root, r"db\.t would be registered in Glue at file://.*/t, expected a location on S3",
            target=(None, "db", "t"), options=options)  # fmt: skip


def test_a_target_that_is_something_else_already(spark, database, tmp_path, root, refused):
    spark.range(1).write.format("delta").save(str(tmp_path / "other"))
    spark.sql(f"CREATE TABLE {database}.elsewhere USING delta LOCATION '{tmp_path / 'other'}'")
    spark.sql(f"CREATE TABLE {database}.hive (id BIGINT) STORED AS PARQUET LOCATION '{root}'")
    spark.sql(f"CREATE VIEW {database}.view AS SELECT 1 AS id")
    for name, found in (
        ("elsewhere", "delta at file:.*/other"),
        ("hive", "hive at file:.*/t"),
        ("view", "no table at"),
    ):
        refused(
            root,
            rf"{database}\.{name} exists: {found}.*; expected a Delta table at file://.*/t, or nothing .* Choose",
            target=("spark_catalog", database, name),
        )
    assert {row.tableName for row in spark.sql(f"SHOW TABLES IN {database}").collect()} == {"elsewhere", "hive", "view"}


def test_a_refused_table_makes_no_schema_either(spark, root, refused):
    (root / "f").write_bytes(b"not parquet")
    refused(root, "not a Parquet file", target=("spark_catalog", "never_made", "t"))
    assert not spark.catalog.databaseExists("never_made")


# --- Places, options, logs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location", ["relative/t", "ftp://host/t", "/a/../t", "s3://k:secret@b/t", "file://host/t", ""]
)
def test_rule_52_a_table_location_that_is_no_folder(spark, root, location):
    before = snapshot(root.parent)
    with pytest.raises(PermanentError, match="table_location") as caught:
        convert_table(spark, files_of(spark, root), location, None, None, None)
    assert "secret" not in str(caught.value)
    assert snapshot(root.parent) == before


def test_rule_52_locations_outside_the_allowed_roots(spark, tmp_path, root, refused):
    options = ConversionOptions(allowed_roots=[str(tmp_path / "t_v2")])
    refused(root, r"file://.*/t lies outside the allowed roots file://.*/t_v2", options=options)
    away = write_parquet(tmp_path / "away" / "f", {"id": [1]}).parent
    options = ConversionOptions(allowed_roots=[str(root)])
    refused(root, r"/away/f lies outside the allowed roots file://.*/t", files_of(spark, root, away), options=options)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"delta.enableChangeDataFeed": "true"}, r"delta.enableChangeDataFeed needs a table feature.* ALTER TABLE"),
        ({"delta.enableDeletionVectors": "true"}, r"delta.enableDeletionVectors needs a table feature"),
        ({"delta.columnMapping.mode": "name"}, r"delta.columnMapping.mode needs a table feature"),
        ({"delta.feature.clustering": "supported"}, r"delta.feature.clustering needs a table feature"),
        ({"delta.minReaderVersion": "3"}, r"delta.minReaderVersion needs a table feature"),
        ({"delta.dataSkippingNumIndexedCols": "many"}, r"delta.dataSkippingNumIndexedCols is 'many', expected"),
    ],
)
def test_properties_that_a_conversion_cannot_give(root, refused, properties, reason):
    refused(root, reason, options=ConversionOptions(properties=properties))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stats": "guess"}, "stats is 'guess', expected one of footer, scan, none"),
        ({"register_in": "hive"}, "register_in is 'hive', expected one of sql, glue"),
        ({"stats_batch_size": 0}, "stats_batch_size is 0, expected at least 1"),
        ({"schema_batch_size": -1}, "schema_batch_size is -1"),
        ({"footer_tail_bytes": 0}, "footer_tail_bytes is 0"),
        ({"footer_threads": 0}, "footer_threads is 0"),
        ({"allow_everything": True}, "ConversionOptions has no allow_everything; it has allow_bucketed"),
    ],
)
def test_options_that_there_are_not(options, reason):
    with pytest.raises(ValueError, match=reason):
        ConversionOptions.from_dict(options)


@pytest.mark.parametrize("setting", ["statsCollection", "schemaInference"])
def test_a_batch_size_that_is_no_number(spark, root, refused, setting):
    name = f"spark.databricks.delta.import.batchSize.{setting}"
    before = spark.conf.get(name, "10000")  # the default of Delta, which may not have been used in this session yet
    spark.conf.set(name, "0")
    try:
        options = ConversionOptions(stats="footer" if setting == "statsCollection" else "none")
        refused(root, rf"{name} is '0', expected a number of files, at least 1", options=options)
    finally:
        spark.conf.set(name, before)


def test_rule_6_a_table_whose_catalog_decides_about_commits(root, refused):
    staged = root / "_delta_log" / "_staged_commits"
    staged.mkdir(parents=True)
    (staged / f"{0:020d}.{'0' * 8}-0000-0000-0000-{'0' * 12}.json").write_text("{}")
    refused(root, r"/t/_delta_log/_staged_commits holds entries: a catalog decides .* Write through that catalog")


# --- Names and columns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "table"),
    [("s", "bad name"), ("bad schema", "t"), ("s", "a.b"), ("s", "t'x"), ("s", "a`; DROP TABLE x"), ("s", "täble")],
)
def test_rule_51_a_name_that_the_catalog_would_refuse_is_refused_before_anything_is_written(
    spark, tmp_path, schema, table
):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1]})
    before = snapshot(root)
    with pytest.raises(PermanentError, match="Choose another name"):
        convert_table(spark, files_of(spark, root), str(root), "spark_catalog", schema, table)
    assert snapshot(root) == before
    assert not spark.catalog.databaseExists("s")


@pytest.mark.parametrize("wrong", ["year", {"year": 1}, [1]])
def test_partition_columns_of_another_kind_are_refused(spark, tmp_path, wrong):
    with pytest.raises(PermanentError, match="expected a list of names or a mapping of name to type"):
        convert_table(spark, files_of(spark, tmp_path), str(tmp_path), None, None, None, wrong)


def test_a_property_that_the_columns_need_otherwise_is_refused(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"a b": [1]})
    before = snapshot(root)
    with pytest.raises(
        PermanentError, match=r"delta\.columnMapping\.mode is 'id', but the table's columns need 'name'"
    ):
        convert_table(
            spark,
            files_of(spark, root),
            str(root),
            None,
            None,
            None,
            options=ConversionOptions(properties={"delta.columnMapping.mode": "id"}),
        )
    assert snapshot(root) == before
