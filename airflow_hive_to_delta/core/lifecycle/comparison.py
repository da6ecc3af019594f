"""The comparison of one original with one Delta table, on Spark: the driver sees totals, and what differs first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.lifecycle.checksums import WHOLE_ROWS, add_up_checksums, compute_checksums, unite
from airflow_hive_to_delta.core.lifecycle.context import TableContext
from airflow_hive_to_delta.core.lifecycle.count_proof import prove_counts
from airflow_hive_to_delta.core.lifecycle.preflight import PreparedTable
from airflow_hive_to_delta.core.results import VerifyResult
from airflow_hive_to_delta.core.schema.merge import TableSchema
from airflow_hive_to_delta.core.schema.partition_values import HIVE_NULL
from airflow_hive_to_delta.core.schema.types import CHAR_VARCHAR, PHYSICAL_NAME, struct_of
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.sql import sql_identifier
from airflow_hive_to_delta.core.spark.versions import file_metadata
from airflow_hive_to_delta.core.storage.uri import canonical_log_uri_column, canonical_uri_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import StructType

#: Differences that a result names; the rest are counted.
MOST_MISMATCHES = 100


@dataclass
class Comparison:
    """One original and one Delta table. In a DataFrame of both the original is ``here_…``, the Delta table ``there_…``.

    A ``group`` is a partition: its values as texts in a JSON array, in the order of the partition columns.
    """

    context: TableContext
    view: DeltaTableView
    original: PreparedTable
    #: Whether Spark reads the original by its name, else by its files.
    through_catalog: bool

    def compare(self, result: VerifyResult) -> None:
        """Fill in the result."""
        keys = [key.lower() for key in self.context.table.partition_keys]
        if keys != [column.lower() for column in self.view.partitioning]:
            # Nothing else can be compared then.
            _add_mismatch(
                result,
                "partition columns",
                ", ".join(self.context.table.partition_keys),
                ", ".join(self.view.partitioning),
            )
            return
        alike = self._compare_columns(result)
        columns_differ = result.mismatch_count > 0
        if not prove_counts(result, self.context.table, self.view, self.original):
            self._compare_counts(result)
        if result.mismatch_count and not columns_differ:
            result.written_since = self._written_since()
        if result.level == "full":
            self._compare_checksums(result, alike)

    def _written_since(self) -> str | None:
        """What Hive has changed since the compared version was committed, if that is all that differs."""
        from pyspark.sql import functions as F  # noqa: N812

        # By the clock of the driver that committed, before it wrote. Storages know the time of a file in seconds.
        committed = int(self.view.history[0].info.get("timestamp", 0)) // 1_000
        same = ["group", "key", "size", "rows"]
        listed, logged = self._listed().where("rows > 0"), self._logged().where("rows > 0")
        since = F.col("seconds") >= committed
        with spark_call(f"Looking for what was written to {self.context.table.qualified_name} since it was converted"):
            (new,) = (
                listed.join(logged, same, "left_anti")
                .agg(
                    F.count(F.when(since, 1)).alias("since"), F.count(F.lit(1)).alias("all"), F.min("key").alias("key")
                )
                .collect()
            )
            gone = logged.join(listed, same, "left_anti").select("key").first()
        if new.since < new["all"]:  # a file that was there when the version was committed
            return None
        return f"the new file {new.key}" if new.since else f"the file {gone.key}, which is gone" if gone else None

    def _compare_columns(self, result: VerifyResult) -> list[str]:
        """Add a mismatch for each column that differs. Returns the names of the others, in lower case."""
        here, there = _types(self._original_schema), _types(self.view.schema)
        for name in [*here, *(name for name in there if name not in here)]:
            if here.get(name) != there.get(name):
                _add_mismatch(result, f"type of the column {name}", here.get(name), there.get(name))
        return [name for name in there if here.get(name) == there[name]]

    def _compare_counts(self, result: VerifyResult) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        def sided(files: DataFrame, *, here: bool) -> DataFrame:
            side, other = ("here", "there") if here else ("there", "here")
            one = files.selectExpr("*", f"1 AS {side}", f"0 AS {other}")
            return one.withColumnRenamed("seconds", f"{side}_seconds")

        listed, logged = sided(self._listed(), here=True), sided(self._logged(), here=False)
        # A file without rows may be on one side alone (rule 41).
        files = listed.unionByName(logged, allowMissingColumns=True).where("rows > 0")
        files = files.groupBy("group", "key", "size", "rows").agg(
            *(F.sum(side).alias(side) for side in ("here", "there")),
            *(F.max(f"{side}_seconds").alias(f"{side}_seconds") for side in ("here", "there")),
        )
        shown = F.format_string("%s (%d bytes, %d rows)", "key", "size", "rows")
        again = F.col("here_seconds") != F.col("there_seconds")
        sums = {"files": F.lit(1), "bytes": F.col("size"), "rows": F.col("rows")}
        partitions = files.groupBy("group").agg(
            *(
                F.sum(F.col(side) * each).alias(f"{side}_{what}")
                for side in ("here", "there")
                for what, each in sums.items()
            ),
            F.min(F.when(F.col("here") > F.col("there"), shown)).alias("here_file"),
            F.min(F.when(F.col("here") < F.col("there"), shown)).alias("there_file"),
            *(
                F.min(
                    F.when(again, F.concat("key", F.lit(" at "), F.timestamp_seconds(f"{side}_seconds").cast("string")))
                ).alias(f"{side}_time")
                for side in ("here", "there")
            ),
            F.count(F.when(again, 1)).alias("written_again"),
        )
        labels = {
            **{what: what for what in (*sums, "file")},
            **({"time": "file written"} if result.level == "full" else {}),
        }
        totals = self._add_group_mismatches(
            result,
            partitions,
            labels,
            *(F.coalesce(F.sum(f"here_{what}"), F.lit(0)).alias(what) for what in sums),
            F.count(F.when(F.col("here_files") > 0, 1)).alias("partitions"),
            F.sum("written_again").alias("written_again"),
            F.min("here_time").alias("first_again"),
        )
        result.file_count, result.byte_count, result.row_count = totals.files, totals.bytes, totals.rows
        result.partition_count = totals.partitions if self.view.partitioning else 0
        if not (totals.files or result.mismatch_count):
            result.is_empty = True
            result.notes.append(
                "There was nothing to compare: neither the original nor the Delta table has a row. It is an empty "
                "table, its location is wrong, or the catalog lacks its partitions"
            )
        if totals.written_again and result.level == "counts":
            result.notes.append(
                f"{totals.written_again} files were written again since they came into the log, with as many bytes and "
                f"rows ({totals.first_again}). If their contents changed, the log's statistics are wrong: call "
                "sync_table"
            )

    def _compare_checksums(self, result: VerifyResult, columns: Sequence[str]) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        data = [column for column in columns if column not in {key.lower() for key in self.view.partitioning}]
        with spark_call(f"Reading the original of {result.source_table}"):
            here = self._original_checksums(data)
        there = self._checksums(self.view.to_df(), data)
        sums = [name for name in there.columns if name.startswith("sum_")]

        def sided(side: str, frame: DataFrame) -> DataFrame:
            return frame.withColumnsRenamed({name: f"{side}_{name}" for name in ("rows", *sums)})

        both = sided("here", here).join(sided("there", there), "group", "full_outer")
        # Of a partition that one side does not have, that much is enough.
        whole = F.col("here_rows").isNotNull() & F.col("there_rows").isNotNull()
        both = both.select(
            "group",
            *(F.coalesce(f"{side}_rows", F.lit(0)).alias(f"{side}_rows") for side in ("here", "there")),
            *(
                F.when(whole, F.col(f"{side}_{name}")).alias(f"{side}_{name}")
                for side in ("here", "there")
                for name in sums
            ),
        )
        labels = [*(f"checksum of the column {name}" for name in data), f"checksum of {WHOLE_ROWS}"]
        self._add_group_mismatches(result, both, {"rows": "rows read", **dict(zip(sums, labels, strict=True))})

    def _listed(self) -> DataFrame:
        """The files of the original, their rows from the footers, or counted by Spark."""
        described = self.original.files
        frame = described.frame
        if described.scanned and described.file_count:
            frame, _ = described.with_statistics(
                self.context.spark, TableSchema(struct_of([])), [], self.context.options
            )
        rows = "coalesce(rows, 0) AS rows"
        return self._in_groups(frame).selectExpr("group", "key", "size", rows, _SECONDS)

    def _in_groups(self, described: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        given = F.from_json("partition_values", "map<string,string>")
        values = [given.getItem(key) for key in self.context.table.partition_keys]
        return self._grouped(described, values).withColumn("key", canonical_uri_column("path"))

    def _logged(self) -> DataFrame:
        """The live files of the log, without the rows that deletion vectors hide."""
        from pyspark.sql import functions as F  # noqa: N812

        files = self.view.files
        with spark_call(f"Reading the files of {self.view.root}"):
            all_known = files.where("rows IS NULL").isEmpty()
        if not all_known:
            data = self.view.to_df()
            path = file_metadata(data).getField("file_path")
            counted = data.groupBy(path.alias("path")).agg(F.count(F.lit(1)).alias("counted"))
            counted = counted.select(canonical_log_uri_column("path", self.view.root).alias("key"), "counted")
            files = files.join(counted, "key", "left").withColumn("rows", F.coalesce("rows", "counted", F.lit(0)))
        physical = {field.name: field.metadata.get(PHYSICAL_NAME, field.name) for field in self.view.schema}
        values = [F.col("partition_values").getItem(physical[column]) for column in self.view.partitioning]
        rows = "rows - coalesce(deletion_vector.cardinality, 0) AS rows"
        return self._grouped(files, values).selectExpr("group", "key", "size", rows, _SECONDS)

    def _original_checksums(self, columns: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        if self.through_catalog:
            parts = (self.context.table.catalog, self.context.table.database, self.context.table.name)
            name = sql_identifier(*(part for part in parts if part))
            self.context.spark.sql(f"REFRESH TABLE {name}")  # the session may remember files of an earlier day
            return self._checksums(self.context.spark.table(name), columns)
        # By file first, so that a file's partition is joined to its sums and not to its rows.
        schema = _as_in_files(self._original_schema, self.context.table.partition_keys)
        by_file = []
        for data in self.original.files.read(self.context.spark, schema, self.context.options):
            path = file_metadata(data).getField("file_path")
            by_file.append(compute_checksums(data, path, _spelt(data, columns)))
        if not by_file:
            nothing = self.context.spark.createDataFrame([], schema)
            return compute_checksums(nothing, F.lit(""), _spelt(nothing, columns))
        files = unite(by_file).withColumn("key", canonical_log_uri_column("group", self.view.root)).drop("group")
        return add_up_checksums(files.join(self._in_groups(self.original.files.frame).select("key", "group"), "key"))

    def _checksums(self, data: DataFrame, columns: Sequence[str]) -> DataFrame:
        """The checksums of a table as Spark reads it, with typed partition columns."""
        from pyspark.sql import functions as F  # noqa: N812

        texts = [F.col(sql_identifier(name)).cast("string") for name in _spelt(data, self.view.partitioning)]
        return compute_checksums(data, _group(texts), _spelt(data, columns))

    def _grouped(self, files: DataFrame, values: Sequence[Column]) -> DataFrame:
        """Files with the ``group`` of their partition values, given as texts: to an int column ``01`` is ``1``."""
        from pyspark.sql import functions as F  # noqa: N812

        types = [self.view.schema[column].dataType.simpleString() for column in self.view.partitioning]
        if not types:  # Spark Connect adds at least one column
            return files.withColumn("group", _group([]))
        raw = [f"partition_value_{number}" for number in range(len(types))]
        frame = files.withColumns(dict(zip(raw, values, strict=True)))
        typed = [
            F.expr(f"coalesce(cast(try_cast({name} AS {kind}) AS string), {name})")
            for name, kind in zip(raw, types, strict=True)
        ]
        return frame.withColumn("group", _group(typed)).drop(*raw)

    @property
    def _original_schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(self.original.schema.schema)

    def _add_group_mismatches(
        self, result: VerifyResult, groups: DataFrame, labels: Mapping[str, str], *totals: Column
    ) -> Row:
        """Count what differs between ``here_…`` and ``there_…``, and keep the first of it.

        :param labels: what each compared column is called in a mismatch.
        :param totals: aggregates over all groups, which are returned.
        """
        from pyspark.sql import functions as F  # noqa: N812

        differ = [~F.col(f"here_{name}").eqNullSafe(F.col(f"there_{name}")) for name in labels]
        groups = groups.withColumn("differences", sum((each.cast("int") for each in differ), F.lit(0)))
        with spark_call(f"Comparing {result.source_table} with its Delta table"):
            (found,) = groups.agg(F.coalesce(F.sum("differences"), F.lit(0)).alias("differences"), *totals).collect()
            first = groups.where("differences > 0").orderBy("group").limit(MOST_MISMATCHES)
            rows = first.collect() if found.differences else []
        for row in rows:
            partition = _partition_name(row.group, self.view.partitioning)
            for name, what in labels.items():
                here, there = row[f"here_{name}"], row[f"there_{name}"]
                if here != there:
                    _add_mismatch(result, what, _plain(here), _plain(there), partition, counted=False)
        result.mismatch_count += found.differences
        return found


# When a file was written; null when it is not known. In seconds, for not every listing knows it more exactly.
_SECONDS = "nullif(modification_time, 0) div 1000 AS seconds"


def _add_mismatch(
    result: VerifyResult, what: str, here: object, there: object, partition: str | None = None, *, counted: bool = True
) -> None:
    if len(result.mismatches) < MOST_MISMATCHES:
        result.mismatches.append({"partition": partition, "what": what, "original": here, "delta": there})
    result.mismatch_count += counted


def _types(schema: StructType) -> dict[str, str]:
    return {field.name.lower(): field.dataType.simpleString().lower() for field in schema}


def _as_in_files(schema: StructType, partition_keys: Sequence[str]) -> StructType:
    """The data columns of a table as its files have them. The length of a ``char`` is kept: Spark pads by it."""
    from pyspark.sql.types import StructField, StructType

    keys = {key.lower() for key in partition_keys}
    fields = [field for field in schema if field.name.lower() not in keys]
    return StructType(
        [
            StructField(
                field.name, field.dataType, metadata={k: v for k, v in field.metadata.items() if k == CHAR_VARCHAR}
            )
            for field in fields
        ]
    )


def _group(texts: Sequence[Column]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.to_json(F.array(*texts)) if texts else F.lit("[]")


def _partition_name(group: str, columns: Sequence[str]) -> str | None:
    """For people: ``year=2024/month=01``."""
    values = [HIVE_NULL if value is None else value for value in json.loads(group)]
    return "/".join(f"{key}={value}" for key, value in zip(columns, values, strict=True)) or None


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, str)) else str(value)


def _spelt(data: DataFrame, columns: Iterable[str]) -> list[str]:
    """The columns as the DataFrame spells them."""
    names = {name.lower(): name for name in data.columns}
    return [names[column.lower()] for column in columns]
