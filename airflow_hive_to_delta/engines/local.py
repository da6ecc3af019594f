"""The embedded engine: Spark in a process of its own on this machine. No cluster, nothing to configure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_hive_to_delta.engines.engine import STAGING_SCHEMES, JobRef, JobSpec
from airflow_hive_to_delta.engines.job_process import JobProcess, ProcessEngine, merge_environment
from airflow_hive_to_delta.engines.spark_settings import check_settings, describe_settings


@dataclass
class LocalSpark(ProcessEngine):
    """Runs each job in a subprocess with a Spark session of its own. The job ends with the process that started it.

    The task's log has the lines of the job's own log, and of Spark's log the warnings. Spark's jars come from Maven
    Central; or from the folder that the environment variable ``HIVE_TO_DELTA_JARS`` names, which
    ``airflow-hive-to-delta fetch-jars`` fills.

    :param memory: of the Spark driver, which does all the work.
    :param cores: how many cores Spark takes. When not given, all that this process may use: of a container with a CPU
        limit no more than that, as Java counts them.
    :param conf: more settings of the session, such as ``{"spark.sql.shuffle.partitions": "8"}``. Their values are shown
        neither in a serialized DAG nor in the list of processes; but options of the JVM itself, such as
        ``spark.driver.extraJavaOptions``, are on its command line.
    """

    #: Jobs can reach the loopback address of the process that submits them.
    runs_on_this_machine = True
    schemes = STAGING_SCHEMES

    memory: str = "2g"
    cores: int | None = None
    conf: dict[str, str] = field(default_factory=dict, repr=False)
    poll_seconds: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.memory, str) or not re.fullmatch(r"[1-9][0-9]*[kmgt]", self.memory, re.IGNORECASE):
            raise ValueError(f"memory is {self.memory!r}, expected a size with its unit, such as '4g'")
        if self.cores is not None and (type(self.cores) is not int or self.cores < 1):
            raise ValueError(f"cores is {self.cores!r}, expected a whole number, at least 1")
        self.conf = check_settings(self.conf)

    def __repr__(self) -> str:
        """Leave out the values of the settings, which may be secret. Airflow writes this into a serialized DAG."""
        settings = f", conf={describe_settings(self.conf)}" if self.conf else ""
        return f"{type(self).__name__}(memory={self.memory!r}, cores={self.cores!r}{settings})"

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        folder = Path(tempfile.mkdtemp(prefix="hive-to-delta-"))
        # Spark's scratch goes with the folder, even when Spark was killed and could not remove it.
        conf = {"spark.local.dir": str(folder), **self.conf}
        session = {"master": f"local[{self.cores or '*'}]", "memory": self.memory, "conf": conf}
        # Apart from the request, which others can read: settings may be secret, and the folder is of this user alone.
        (folder / "session.json").write_text(json.dumps(session))
        command = [sys.executable, "-m", "airflow_hive_to_delta.job", *spec.arguments]
        command += ["--session", str(folder / "session.json"), "--ends-with-input"]
        spark_output, for_spark = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603
                [*command, "--spark-output", str(for_spark)],
                # Kept open and never written to: it closes when this process ends, and the job ends then.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=merge_environment(environment),
                pass_fds=[for_spark],
                start_new_session=True,
                cwd=folder,
            )
        finally:
            os.close(for_spark)
        job = str(process.pid)
        self._jobs[job] = JobProcess(process, folder, os.fdopen(spark_output, "rb"))
        return JobRef(job, spec.results_uri)

    def advise_on_memory(self) -> str:
        return (
            "Give the machine more memory, or let fewer or smaller jobs run at a time: this one's Spark may take "
            f"memory={self.memory!r} beside what Python takes"
        )
