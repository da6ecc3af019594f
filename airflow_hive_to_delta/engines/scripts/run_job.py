"""Runs a job of airflow-hive-to-delta, whose package is on the path of Python: run_job.py REQUEST --results RESULTS."""

import sys

from airflow_hive_to_delta.job.run import main

# A platform that runs this script inside a program of its own takes any exit, even with 0, for a failure.
if code := main():
    sys.exit(code)
