"""Jobs with a window: after its end no table is begun."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_to_delta import ConversionOptions, TableInfo
from airflow_hive_to_delta.job.handlers import convert_tables
from airflow_hive_to_delta.job.manifests import FileList
from tests.support.tables import write_parquet


def test_a_table_that_was_not_begun_in_the_window_is_as_it_was(spark, tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "t" / "000000_0", {"n": [1]})
    table = TableInfo("t", str(tmp_path / "t"), columns=[{"Name": "n", "Type": "bigint"}])
    listed = [{"path": str(file), "size": file.stat().st_size, "partition_values": {}, "modification_time": None}]
    files = FileList("t", 1, file.stat().st_size, files=listed).to_dict()

    def convert(until: str) -> dict[str, object]:
        options = ConversionOptions().to_dict()
        return dict(convert_tables(spark, [table.to_dict()], [files], None, [None], options, until=until)["results"][0])

    late = convert("2020-01-01T00:00:00+00:00")
    assert (late["status"], late["error_kind"], late["retryable"]) == ("failed", "WindowClosedError", True)
    assert not (tmp_path / "t" / "_delta_log").exists()
    assert convert("2120-01-01T00:00:00+00:00")["status"] == "converted"
