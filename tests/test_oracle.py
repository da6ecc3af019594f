"""The oracle sees what data skipping would lose: one wrong statistic in a log is enough."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.oracle import assert_same, delta_at
from tests.support.tables import convert_folder, write_parquet

COLUMNS = {"id": pa.array([1, 2, None], pa.int64()), "name": pa.array(["b", "c", "d"])}


@pytest.mark.parametrize(
    ("statistic", "column", "wrong", "lost"),
    [
        ("minValues", "id", 2, r"\('id',\) = 1, with data skipping"),
        ("maxValues", "name", "c", r"\('name',\) = 'd', with data skipping"),
        ("nullCount", "id", 0, r"\('id',\) is null, with data skipping"),
    ],
)
def test_a_wrong_statistic_is_seen(spark, tmp_path: Path, statistic, column, wrong, lost) -> None:
    root = tmp_path / "t"
    write_parquet(root / "a", COLUMNS)
    write_parquet(root / "b", COLUMNS)
    convert_folder(spark, root)
    log = root / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action)
    stats = json.loads(add["stats"])
    assert stats[statistic][column] != wrong
    stats[statistic][column] = wrong
    add["stats"] = json.dumps(stats)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for checksum in root.rglob("*.crc"):
        checksum.unlink()

    original = spark.read.parquet(str(root / "a"), str(root / "b"))
    with pytest.raises(AssertionError, match=lost):
        assert_same(spark, original, delta_at(spark, root))
