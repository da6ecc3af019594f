"""Runs a job of airflow-hive-to-delta on AWS Glue, which gives a script names with values only, its own among them."""

import sys
from itertools import pairwise

from airflow_hive_to_delta.job.run import main

given = dict(pairwise(sys.argv[1:]))
arguments = [given["--request"], "--results", given["--results"]]
if "--variables" in given:
    arguments += ["--variables", given["--variables"]]

# Glue takes any exit, even with 0, for a failure.
if code := main(arguments):
    sys.exit(code)
