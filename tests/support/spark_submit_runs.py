"""Running what was submitted to a stand-in by ``spark-submit`` on this machine, as a platform would."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_hive_to_delta.core.spark.jars import CLASSES_FILE, JARS_VARIABLE
from tests.support.aws import REGION
from tests.support.jvm_options import FAST_START

#: The access key of the identity that jobs have there, which is not that of the task.
JOB_KEY = "testing-role"
#: What a platform's own process has not: the project, and what points the tests at stand-ins.
_NOT_INHERITED = (
    "PYTHONPATH",
    "AWS_ENDPOINT_URL_GLUE",
    "AWS_ENDPOINT_URL_EMR_SERVERLESS",
    "AIRFLOW_HOME",
    "SPARK_CONF_DIR",
)


def write_spark_defaults(folder: Path) -> None:
    """The settings of a platform, in ``spark-defaults.conf``: S3 on moto's server, no open port."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    settings = {
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": f"{FAST_START} {archived_classes()}",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": JOB_KEY,
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


def archived_classes() -> str:
    """The option by which a JVM that loads Spark starts faster; empty if its classes were not archived.

    The JVM does without them when anything stands before Spark's jars on its class path, as a folder of settings does.
    """
    classes = Path(os.environ[JARS_VARIABLE], CLASSES_FILE)
    return f"-XX:SharedArchiveFile={classes}" if classes.is_file() else ""


def spark_submit(
    folder: Path,
    main: str,
    arguments: Sequence[str],
    *,
    py_files: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
) -> list[str]:
    """The command that runs a script with the installed Spark.

    :param folder: where :func:`write_spark_defaults` has written.
    """
    command = [str(_spark_home() / "bin" / "spark-submit"), "--properties-file", str(folder / "spark-defaults.conf")]
    if py_files:
        command += ["--py-files", ",".join(py_files)]
    for name, value in (conf or {}).items():
        command += ["--conf", f"{name}={value}"]
    return [*command, main, *arguments]


def platform_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a platform's process, which has Delta Lake and S3 on its class path."""
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return {
        **inherited,
        "AWS_ACCESS_KEY_ID": JOB_KEY,
        "SPARK_DIST_CLASSPATH": f"{os.environ[JARS_VARIABLE]}/*",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **(variables or {}),
    }


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())
