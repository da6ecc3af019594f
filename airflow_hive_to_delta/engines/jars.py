"""Filling a folder with the jars of the embedded Spark, for machines without a network and for faster starts.

Each step runs in a process of its own, ``python -m airflow_hive_to_delta.engines.jars``, because a JVM takes its
options when it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.spark.jars import CLASSES_FILE, JARS_VARIABLE, PACKAGES_FILE

if TYPE_CHECKING:
    pass

#: Of the output of a process that failed, how many of the last lines are shown.
_LAST_LINES = 40


class FetchError(Exception):
    """The jars could not be fetched."""


def fetch_jars(folder: Path, *, archive_classes: bool = True) -> int:
    """Fill a folder with the jars of the embedded Spark, and remove those of other versions from it.

    Sessions take them from there when the environment variable ``HIVE_TO_DELTA_JARS`` names the folder. Safe to call
    again while sessions use the folder, unless its jars are of other versions.

    :param archive_classes: also keep the classes as the JVM has them in memory, so that it starts in about two thirds
        of the time. Only a JVM of the same build can use them; another one starts as before.
    :returns: how many jars there are.
    :raises FetchError: Ivy could not find them, or Spark did not start.
    """
    from airflow_hive_to_delta.core.spark.versions import local_jars

    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    packages, listed = folder / PACKAGES_FILE, "".join(f"{package}\n" for package in local_jars().packages)
    environment = {name: value for name, value in os.environ.items() if name != JARS_VARIABLE}
    # In the folder itself, so that what is ready can be moved to its place in one step.
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder) as temporary:
        if not packages.is_file() or packages.read_text() != listed:
            # The list of packages is written last, so that what an interruption leaves is never taken for whole.
            packages.unlink(missing_ok=True)
            _run("resolve", temporary, environment=environment)
            for old in (*folder.glob("*.jar"), folder / CLASSES_FILE):
                old.unlink(missing_ok=True)
            for jar in (Path(temporary) / "jars").glob("*.jar"):
                jar.replace(folder / jar.name)
            ready = Path(temporary) / PACKAGES_FILE
            ready.write_text(listed)
            ready.replace(packages)
        if archive_classes:
            classes = Path(temporary) / CLASSES_FILE
            _run("archive", temporary, str(classes), environment={**environment, JARS_VARIABLE: str(folder)})
            classes.replace(folder / CLASSES_FILE)
    packages.touch()  # for make: what is there is of today
    return len(list(folder.glob("*.jar")))


def _run(step: str, *arguments: str, environment: dict[str, str]) -> None:
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "airflow_hive_to_delta.engines.jars", step, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode:
        last = ended.stdout.splitlines()[-_LAST_LINES:]
        raise FetchError("\n".join(["Spark could not be started with its jars:", *last]))


def _resolve(ivy_folder: str) -> None:
    """Let Ivy put the jars into a folder of its own, so that no others are among them."""
    from airflow_hive_to_delta.core.spark.session import local_session

    local_session(conf={"spark.jars.ivy": ivy_folder}).stop()


def _archive_classes(temporary: str, archive: str) -> None:
    """Convert and verify a small table, so that the JVM has loaded what a job loads, and let it write its classes."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark import SparkContext

    from airflow_hive_to_delta.core.lifecycle.convert import TableConverter
    from airflow_hive_to_delta.core.lifecycle.verify import verify_table
    from airflow_hive_to_delta.core.listing.spark import DatabricksListing
    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.spark.session import local_session

    root = Path(temporary) / "table"
    (root / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), root / "day=1" / "000000_0")
    table = TableInfo(
        name="t",
        location=str(root),
        columns=[{"Name": "id", "Type": "bigint"}],
        partition_keys=["day"],
        partition_types={"day": "string"},
    )
    spark = local_session(
        conf={
            "spark.local.dir": temporary,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.driver.defaultJavaOptions": f'-Xlog:cds=error "-XX:ArchiveClassesAtExit={archive}"',
        }
    )
    jvm: Any = spark._jvm
    # A client of S3 is made, and asks for nothing.
    jvm.org.apache.hadoop.fs.Path("s3a://bucket/").getFileSystem(spark._jsc.hadoopConfiguration())
    listing = DatabricksListing()
    converted = TableConverter(spark, [table], listing, None, lambda _: None, ConversionOptions()).convert(table)
    verified = verify_table(spark, table, listing, level="full")
    if error := converted.error or verified.error:
        sys.exit(error)
    spark.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    if code := gateway.proc.wait():
        sys.exit(f"Spark's JVM exited with {code}")


if __name__ == "__main__":
    steps: dict[str, Callable[..., None]] = {"resolve": _resolve, "archive": _archive_classes}
    steps[sys.argv[1]](*sys.argv[2:])
