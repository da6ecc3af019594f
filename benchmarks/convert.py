"""Converts one table in four ways, in one run: CONVERT TO DELTA, delta-rs, footers only, and this package.

    python benchmarks/convert.py [--files 10000] [--partitions 500] [--keep FOLDER]

Prints the times and the ratios; the last line is one JSON object. Absolute times say little about another machine,
ratios within one run do. CONVERT TO DELTA runs first, as the one command for one table that it is, in a session that
has just started, and once more at the end, when the session knows it well: both times are told. The other ways run five
times and count with their best; ours runs in a session that smaller conversions have warmed up.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from airflow_hive_to_delta import convert_table, local_session

COLUMNS = 10
#: Files of some 8 KB.
ROWS = 200


def make_table(root: Path, files: int, partitions: int) -> list[Path]:
    """Small files of ten columns, half numbers and half strings, spread over partitions."""
    made = []
    data = {f"n{i}": list(range(i, ROWS + i)) for i in range(COLUMNS // 2)}
    data |= {f"s{i}": [f"value {row % 17} of {i}" for row in range(ROWS)] for i in range(COLUMNS // 2)}
    one = root / "one.parquet"
    root.mkdir(parents=True)
    pq.write_table(pa.table(data), one)
    content = one.read_bytes()
    one.unlink()
    for number in range(files):
        path = root / f"day={number % partitions:04d}" / f"part-{number:06d}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        made.append(path)
    return made


def timed(way: Callable[[], object], *, after: Callable[[], object] = lambda: None, times: int = 1) -> float:
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        way()
        seconds.append(time.perf_counter() - started)
        after()
    return min(seconds)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--files", type=int, default=10_000)
    arguments.add_argument("--partitions", type=int, default=500)
    arguments.add_argument("--keep", type=Path, help="make the table here and keep it")
    chosen = arguments.parse_args()
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        report = bench(folder / "table", chosen.files, chosen.partitions)
    finally:
        if not chosen.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(report))


def bench(root: Path, files: int, partitions: int) -> dict[str, object]:
    paths = make_table(root, files, partitions)
    spark = local_session(
        "bench",
        conf={"spark.log.level": "ERROR"},
    )
    log = root / "_delta_log"
    listed = [(str(path), path.stat().st_size) for path in paths]
    files_df = spark.createDataFrame(listed, "file_path string, size long")

    def forget() -> None:
        shutil.rmtree(log)

    def footers_only() -> None:
        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(lambda path: pq.read_metadata(path).num_rows, paths)) == files * ROWS

    def ours() -> None:
        result = convert_table(spark, files_df, str(root), None, None, None, {"day": "string"})
        assert (result.file_count, result.row_count) == (files, files * ROWS)

    def delta_rs() -> None:
        schema = deltalake.Schema([deltalake.Field("day", "string")])
        deltalake.convert_to_deltalake(str(root), partition_by=schema, partition_strategy="hive")

    def convert_to_delta() -> None:
        spark.sql(f"CONVERT TO DELTA parquet.`{root}` PARTITIONED BY (day STRING)")

    seconds = {"convert_to_delta": timed(convert_to_delta, after=forget)}
    warm_up(spark, root.parent / "warm")
    seconds["footers_only"] = timed(footers_only, times=5)
    seconds["ours"] = timed(ours, after=forget, times=5)
    seconds["delta_rs"] = timed(delta_rs, after=forget, times=5)
    seconds["convert_to_delta_again"] = timed(convert_to_delta, after=forget)
    spark.stop()
    ratios = {name: round(value / seconds["ours"], 2) for name, value in seconds.items()}
    print(f"\n{files} files, {COLUMNS} columns, {partitions} partitions, {os.cpu_count()} cores", file=sys.stderr)
    for name, value in seconds.items():
        print(f"{name:>24} {value:8.2f} s  {ratios[name]:7.2f} x ours", file=sys.stderr)
    return {
        "files": files,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "times_faster_than_convert_to_delta": ratios["convert_to_delta"],
        "times_faster_than_convert_to_delta_again": ratios["convert_to_delta_again"],
        "times_the_footers_only_limit": round(seconds["ours"] / seconds["footers_only"], 2),
    }


def warm_up(spark: SparkSession, root: Path) -> None:
    """Smaller conversions, until none pays for a session that has just begun."""
    for number in range(10):
        table = root / str(number)
        listed = [(str(path), path.stat().st_size) for path in make_table(table, 2_000, 100)]
        files_df = spark.createDataFrame(listed, "file_path string, size long")
        convert_table(spark, files_df, str(table), None, None, None, {"day": "string"})
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
