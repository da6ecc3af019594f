"""Every example of the README runs, on the places it names."""

from __future__ import annotations

import re
from pathlib import Path

import airflow_hive_to_delta
from tests.support.tables import write_parquet

README = Path(__file__).parent.parent / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_dag_of_the_readme_is_the_example_that_is_run() -> None:
    (dag,) = [block for block in python_blocks() if "DAG(" in block]
    assert (README.parent / "dags_examples" / "one_database.py").read_text().endswith(dag)


def test_the_examples_of_the_readme(spark, s3, glue, bucket, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(airflow_hive_to_delta, "local_session", lambda: spark, raising=False)
    lake = tmp_path / "lake"
    write_parquet(lake / "events" / "year=2024" / "country=de" / "000000_0", {"id": [1, 2]})
    write_parquet(lake / "orders" / "day=2024-02-29" / "000000_0", {"id": [3]})
    fill_glue(s3, glue, bucket, write_parquet(tmp_path / "one.parquet", {"id": [4, 5, 6]}))
    spark.sql("CREATE DATABASE legacy")
    spark.sql(f"CREATE TABLE legacy.customers (id BIGINT) STORED AS PARQUET LOCATION '{tmp_path}/customers'")
    spark.sql("INSERT INTO legacy.customers VALUES (7)")
    try:
        names: dict[str, object] = {}
        for block in python_blocks():
            exec(block.replace("/lake/", f"{lake}/"), names)  # as a reader would paste it
        assert spark.table("bronze.events").count() == 2
        assert spark.table("bronze.dim_dates").count() == 3
        assert spark.table("bronze.customers").count() == 1
        assert spark.read.format("delta").load(str(lake / "orders")).count() == 1
        assert [result.status for result in names["results"]] == ["converted"]  # type: ignore[attr-defined]
        assert "1 of 1 tables done" in capsys.readouterr().out
    finally:
        spark.sql("DROP DATABASE IF EXISTS bronze CASCADE")
        spark.sql("DROP DATABASE legacy CASCADE")
        glue.delete_database(Name="sales")


def fill_glue(s3, glue, bucket: str, file: Path) -> None:
    s3.put_object(Bucket=bucket, Key="dim_dates/000000_0", Body=file.read_bytes())
    glue.create_database(DatabaseInput={"Name": "sales"})
    glue.create_table(
        DatabaseName="sales",
        TableInput={
            "Name": "dim_dates",
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": {
                "Columns": [{"Name": "id", "Type": "bigint"}],
                "Location": f"s3://{bucket}/dim_dates",
                "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
                "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
            },
        },
    )
