"""What Delta itself writes to a converted table, partitions in another bucket and with odd values included.

After each: the rows are the expected ones, version 0 still has the original ones, and the Hive files are untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from airflow_hive_to_delta.core.spark.sql import sql_identifier, sql_literal
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at
from tests.support.tables import write_parquet

pytestmark = pytest.mark.slow

COLUMNS = "id long, p string"
Row = tuple[int | None, str | None]

SPACED, EQUAL, QUOTED = "a b 50%", "k=v", '"o\'neil" é'
#: A partition's value, and its folder as Hive escapes it.
Folder = tuple[str | None, str]
IN_THE_ROOT: list[Folder] = [(SPACED, "p=a b 50%25"), (EQUAL, "p=k%3Dv")]
IN_ANOTHER_BUCKET: list[Folder] = [(QUOTED, "p=%22o%27neil%22 é"), (None, "p=__HIVE_DEFAULT_PARTITION__")]
PARTITIONS = [value for value, _ in IN_THE_ROOT + IN_ANOTHER_BUCKET]
#: The files of every partition.
FILES: list[list[int | None]] = [[0, 1], [None]]
ROWS: list[Row] = [(number, p) for p in PARTITIONS for file in FILES for number in file]


@dataclass
class Converted:
    lake: Lake

    def sql(self, statement: str) -> None:
        """Run a statement about the table ``{t}``."""
        self.lake.spark.sql(statement.replace("{t}", sql_identifier("delta", self.lake.location())))

    def frame(self, rows: Sequence[Row]) -> DataFrame:
        return self.lake.spark.createDataFrame(list(rows), COLUMNS).coalesce(1)

    def live_files(self) -> list[str]:
        return delta_at(self.lake.spark, self.lake.location()).inputFiles()


@pytest.fixture
def table(lake: Lake) -> Converted:
    other = lake.add_bucket()
    partitions = []
    for bucket, folder, values in ((lake.bucket, "t", IN_THE_ROOT), (other, "old t%20", IN_ANOTHER_BUCKET)):
        for value, name in values:
            partitions.append(([value], f"s3://{bucket}/{folder}/{name}"))
            for number, file in enumerate(FILES):
                lake.put(f"{folder}/{name}/00000{number}_0", {"id": pa.array(file, pa.int64())}, bucket)
    original = lake.table({"id": "bigint"}, {"p": "string"}, partitions)
    assert sorted(map(tuple, original.collect()), key=repr) == sorted(ROWS, key=repr)
    result = lake.convert()
    assert (result.status, result.file_count, result.row_count) == ("converted", 8, 12), result.error
    return Converted(lake)


def stream(table: Converted, tmp_path: Path) -> list[Row]:
    """Stream rows into every partition, and into a new one."""
    new: list[Row] = [(2, p) for p in [*PARTITIONS, "x/y"]]
    write_parquet(tmp_path / "source" / "f", {"id": [number for number, _ in new], "p": [p for _, p in new]})
    data = table.lake.spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "source"))
    writer = data.writeStream.format("delta").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(table.lake.location()).awaitTermination()
    return ROWS + new


def merge(table: Converted, _: Path) -> list[Row]:
    """In every partition a row is changed, one deleted and one new; and a partition is new."""
    inserted: list[Row] = [(2, p) for p in [*PARTITIONS, "né/w %="]]
    matched: list[Row] = [(number, p) for p in PARTITIONS for number in (0, 1)]
    table.frame(matched + inserted).createOrReplaceTempView("changes")
    table.sql(
        "MERGE INTO {t} AS t USING changes AS c ON t.id = c.id AND t.p <=> c.p "
        "WHEN MATCHED AND c.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET id = 3 WHEN NOT MATCHED THEN INSERT *"
    )
    table.lake.spark.catalog.dropTempView("changes")
    return [*((3, p) for p in PARTITIONS), *((None, p) for p in PARTITIONS), *inserted]


def update(table: Converted, _: Path) -> list[Row]:
    """A row of every partition; and all of one move from the other bucket to a partition in the root."""
    table.sql("UPDATE {t} SET id = id + 1 WHERE id % 2 = 1")
    table.sql(f"UPDATE {{t}} SET p = {sql_literal(SPACED)} WHERE p = {sql_literal(QUOTED)}")
    return [(2 if number == 1 else number, SPACED if p == QUOTED else p) for number, p in ROWS]


def delete(table: Converted, _: Path) -> list[Row]:
    """The whole null partition, a row of one in each bucket, and a whole file of every one."""
    table.sql("DELETE FROM {t} WHERE p IS NULL")
    table.sql(f"DELETE FROM {{t}} WHERE id IS NULL OR id = 0 AND p IN ({sql_literal(SPACED)}, {sql_literal(QUOTED)})")
    return [(0, EQUAL), (1, SPACED), (1, EQUAL), (1, QUOTED)]


def optimize(table: Converted, _: Path) -> list[Row]:
    """Optimize one partition, ordered by a column, and then the others."""
    table.sql(f"OPTIMIZE {{t}} WHERE p = {sql_literal(QUOTED)} ZORDER BY (id)")
    assert len(table.live_files()) == 7
    table.sql("OPTIMIZE {t}")
    assert len(table.live_files()) == 4
    return ROWS


@pytest.mark.parametrize("write", [stream, merge, update, delete, optimize])
def test_delta_writes_to_a_converted_table(
    table: Converted, tmp_path: Path, write: Callable[[Converted, Path], list[Row]]
) -> None:
    lake = table.lake
    before = lake.objects()
    expected = write(table, tmp_path)
    assert_same(lake.spark, table.frame(expected), delta_at(lake.spark, lake.location()))

    after = lake.objects()
    assert {name: after.get(name) for name in before} == before, "nothing that was there is changed or gone"
    new = after.keys() - before.keys()
    assert new
    assert not [name for name in new if not name.startswith(f"{lake.bucket}/t/")], "Delta writes under the root only"
    travelled = lake.spark.read.format("delta").option("versionAsOf", 0).load(lake.location())
    assert sorted(map(tuple, travelled.collect()), key=repr) == sorted(ROWS, key=repr)
