"""Running what was submitted to a stand-in by ``spark-submit`` on this machine, as a platform would."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_hive_to_delta.core.spark.jars import JARS_VARIABLE
from tests.support.aws import REGION

#: What a platform's own process has not: the project, and what points the tests at stand-ins.
_NOT_INHERITED = ("PYTHONPATH", "AWS_ENDPOINT_URL_GLUE", "AWS_ENDPOINT_URL_EMR_SERVERLESS", "AIRFLOW_HOME")


def write_spark_defaults(folder: Path) -> None:
    """The ``spark-defaults.conf`` of a platform: S3 on moto's server, Delta Lake on the class path, no open port."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    settings = {
        "spark.master": "local[2]",
        "spark.driver.extraClassPath": ":".join(_jars_beside_those_of_spark()),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "testing",
        "spark.hadoop.fs.s3a.secret.key": "testing",
        # Few queries over a handful of rows: compiling each costs more than running it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))


def spark_submit(
    main: str, arguments: Sequence[str], *, py_files: Sequence[str] = (), conf: Mapping[str, str] | None = None
) -> list[str]:
    """The command that runs a script with the installed Spark."""
    command = [str(_spark_home() / "bin" / "spark-submit")]
    if py_files:
        command += ["--py-files", ",".join(py_files)]
    for name, value in (conf or {}).items():
        command += ["--conf", f"{name}={value}"]
    return [*command, main, *arguments]


def platform_environment(folder: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a platform's process.

    :param folder: where :func:`write_spark_defaults` has written.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return {
        **inherited,
        "SPARK_CONF_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **(variables or {}),
    }


def _jars_beside_those_of_spark() -> list[str]:
    """Delta Lake and S3. What comes first on the class path counts, so that Spark's own libraries must not be there."""
    own = {_artifact(path.name) for path in _spark_home().glob("jars/*.jar")}
    jars = sorted(Path(os.environ[JARS_VARIABLE]).glob("*.jar"))
    return [str(path) for path in jars if _artifact(path.name.partition("_")[2]) not in own]


def _artifact(file_name: str) -> str:
    return re.sub(r"-\d.*", "", file_name)


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())
