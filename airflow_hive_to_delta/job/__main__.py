"""``python -m airflow_hive_to_delta.job``."""

from __future__ import annotations

import sys

from airflow_hive_to_delta.job.run import main

if __name__ == "__main__":
    sys.exit(main())
