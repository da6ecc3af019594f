"""The command ``airflow-hive-to-delta``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from airflow_hive_to_delta.core.errors import MissingDependencyError
from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.core.spark.jars import JARS_VARIABLE
from airflow_hive_to_delta.engines.jars import FetchError, fetch_jars


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="airflow-hive-to-delta", description="Prepare a machine for the migration.")
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser(
        "fetch-jars",
        help="fill a folder with the jars of the embedded Spark",
        description="Fill a folder with the jars of the embedded Spark (LocalSpark, local_session), for images without "
        f"a network. Sessions take them from there when the environment variable {JARS_VARIABLE} names the folder, and "
        "start faster.",
    )
    fetch.add_argument("folder", type=Path, help="where the jars go; some 60 MB, and 160 MB of classes")
    fetch.add_argument(
        "--no-classes", action="store_true", help="without the JVM's archive of classes, by which it starts faster"
    )
    chosen = parser.parse_args(arguments)
    try:
        with needs_extra("local", "The embedded Spark"):
            import pyspark  # noqa: F401
        count = fetch_jars(chosen.folder, archive_classes=not chosen.no_classes)
    except (MissingDependencyError, FetchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{count} jars are in {chosen.folder}. Set {JARS_VARIABLE}={chosen.folder} where LocalSpark runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
