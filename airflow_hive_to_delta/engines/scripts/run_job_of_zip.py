"""Runs a job of airflow-hive-to-delta: run_job_of_zip.py ZIP REQUEST --results RESULTS.

Not by ``--py-files``: ``spark-submit`` would look for the zip where the job is submitted, with a file system and an
identity that an Airflow worker need not have.
"""

import sys

from pyspark.sql import SparkSession

package, *arguments = sys.argv[1:]
SparkSession.builder.getOrCreate().sparkContext.addPyFile(package)

from airflow_hive_to_delta.job.run import main

if code := main(arguments):
    sys.exit(code)
