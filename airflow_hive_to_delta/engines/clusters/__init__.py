"""What an engine asks of a Spark cluster: a standalone master, or YARN, which a connection of Airflow names."""
