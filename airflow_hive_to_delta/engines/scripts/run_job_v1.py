"""Runs a job of airflow-hive-to-delta: run_job_v1.py ZIP REQUEST --results RESULTS."""

import os
import pathlib
import sys
import tempfile

package, *arguments = sys.argv[1:]

# The JVM cannot read files of the workspace or of a volume, so the zip is copied to the driver's disk. It stays there:
# on a cluster that goes on, executors may ask for it later.
folder = pathlib.Path(tempfile.gettempdir(), "airflow-hive-to-delta")
folder.mkdir(exist_ok=True)
copy = folder / pathlib.Path(package).name
if not copy.exists():
    half = copy.with_name(f"{copy.name}.{os.getpid()}")
    half.write_bytes(pathlib.Path(package).read_bytes())
    half.replace(copy)
sys.path.insert(0, str(copy))

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
if type(spark).__module__.startswith("pyspark.sql.connect") or int(spark.version.partition(".")[0]) >= 4:
    spark.addArtifacts(str(copy), pyfile=True)
else:
    spark.sparkContext.addPyFile(str(copy))

from airflow_hive_to_delta.job.run import main

# Databricks takes any exit, even with 0, for a failure.
if code := main(arguments):
    sys.exit(code)
