"""Tables of a catalog that Spark knows: Unity Catalog, ``hive_metastore``, or a Hive metastore of one's own.

Spark finds the tables, lists their files and reads their statistics, all with the identity that it has: no task asks
the storage itself. Which catalogs there are is set where Spark runs: for the embedded one in the
``spark-defaults.conf`` of ``SPARK_CONF_DIR``.
"""

from airflow.sdk import DAG

from airflow_hive_to_delta import (
    CatalogSource,
    CatalogTarget,
    ConversionOptions,
    FileListing,
    PerTable,
    hive_to_delta_task_group,
)

#: Patterns on catalog.schema.table; on Databricks those of "hive_metastore.sales.*" become tables of "main.sales".
TABLES = ["spark_catalog.sales.*"]
TARGET_CATALOG = "spark_catalog"
TARGET_SCHEMA = "sales_delta"
STAGING = "s3://lake/staging"

with DAG("unity_catalog", schedule=None, tags=["hive_to_delta"]):
    hive_to_delta_task_group(
        source=CatalogSource(allow=TABLES, deny=["*.information_schema.*", "*.*.tmp_*"]),
        listing=FileListing("spark"),
        target=CatalogTarget(TARGET_CATALOG, TARGET_SCHEMA),
        staging=STAGING,
        # Unity Catalog lends credentials to Spark's own readers, not to Python code on the workers: statistics come
        # from a scan by Spark instead of the Parquet footers.
        options=ConversionOptions(stats="scan"),
        per_table=PerTable(batch_size=50),
    )
