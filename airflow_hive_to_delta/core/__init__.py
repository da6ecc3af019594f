"""The conversion core: PySpark, pyarrow and boto3, and no Airflow."""
