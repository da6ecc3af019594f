"""The Spark job: a request in, a result per table out. It knows no engine, and nothing of Airflow."""
