"""AWS connections of Airflow, for the clients of a task and for the processes of its jobs."""
