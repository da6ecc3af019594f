"""New Parquet files of a folder stream into a converted table, each of them once, however often the task is tried.

``DeltaSink`` is the writable end: a micro-batch is one commit, which says which query and which batch it is of. With
``availableNow`` the query ends when it has read what is there, and the next run goes on from its checkpoint.
Spark runs in the task itself, with the identity that the worker has.
"""

from airflow.sdk import DAG, task

TABLE = "s3://lake/sales/items"
LANDING = "s3://lake/landing/items"
CHECKPOINT = "s3://lake/staging/checkpoints/items"

with DAG("stream_into_table", schedule=None, max_active_runs=1, tags=["hive_to_delta"]):

    @task
    def stream() -> dict[str, int]:
        from airflow_hive_to_delta import DeltaSink, DeltaTableView, local_session

        spark = local_session("Stream into items")
        sink = DeltaSink(TABLE)
        files = spark.readStream.schema(DeltaTableView.for_path(spark, TABLE).schema).parquet(LANDING)
        query = (
            files.writeStream.foreachBatch(sink)
            .option("checkpointLocation", CHECKPOINT)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return {"version": DeltaTableView.for_path(spark, TABLE).version, **sink.metrics}

    stream()
