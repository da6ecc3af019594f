"""The benchmarks still run: tables are made, contenders measured, and results reported, in small and without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from benchmarks.__main__ import main
from benchmarks.campaigns.__main__ import main as measure_campaigns
from benchmarks.campaigns.measurements import make_documents, measure_page, measure_planning
from benchmarks.campaigns.section import PAGE
from benchmarks.cases import CASES
from benchmarks.data import LocalStore
from benchmarks.machine import describe_machine
from benchmarks.registry import CONTENDERS
from benchmarks.report import keep_lines
from benchmarks.targets import format_targets

#: The large files of row-groups take seconds to make.
LOCAL_CASES = [name for name, case in CASES.items() if case.storage == "local" and name != "row-groups"]


def test_a_small_case_is_measured_cold_and_warm_and_reported(tmp_path):
    (scratch := tmp_path / "scratch").mkdir()
    results, page = tmp_path / "results.jsonl", tmp_path / "RESULTS.md"
    chosen = ["--case=local-10k", "--contender=delta-rs", "--contender=footers", "--scale=0.004", "--rounds=1"]
    main([*chosen, f"--scratch={scratch}", f"--json={results}", f"--report={page}"])
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line["contender"] for line in lines] == ["delta-rs", "footers"]
    for line in lines:
        assert line["files"] == 40
        assert line["machine"]["cores"] > 0
        for mode in ("cold", "warm"):
            assert "error" not in line[mode]
            assert line[mode]["seconds"] > 0
            assert line[mode]["peak_mb"]["driver"] > 0
        assert line["cold"]["seconds"] > line["cold"]["startup_seconds"][0]
    assert "| delta-rs | 40 |" in page.read_text()
    ElementTree.parse(tmp_path / "results.svg")
    assert list(scratch.iterdir()) == []


def test_a_contender_that_fails_has_its_error_as_a_result(tmp_path):
    results = tmp_path / "results.jsonl"
    # Without Java the session of ours does not start; a footers run beside it goes on.
    chosen = ["--case=local-10k", "--contender=ours", "--contender=footers", "--scale=0.002", "--mode=warm"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
        main([*chosen, "--rounds=1", f"--scratch={tmp_path}", f"--json={results}"])
    ours, footers = (json.loads(line) for line in results.read_text().splitlines())
    assert ours["warm"]["error"]
    assert footers["warm"]["seconds"] > 0


@pytest.mark.parametrize("name", LOCAL_CASES)
def test_the_tables_of_every_local_case_have_the_files_and_rows_that_they_name(name, tmp_path):
    case = CASES[name]
    entries = case.make(LocalStore(tmp_path), 0.0001, case.contenders)
    assert [entry.contender for entry in entries] == list(case.contenders)
    assert set(case.contenders) | set(case.relative_to) <= set(CONTENDERS)
    for table in {table.location: table for entry in entries for table in entry.job.tables}.values():
        files = list(Path(table.location).rglob("*.parquet"))
        assert len(files) == table.files
        assert sum(pq.read_metadata(file).num_rows for file in files) == table.rows


def test_the_report_says_which_targets_hold():
    def line(contender, seconds):
        return {"case": "local-10k", "contender": contender, "scale": 1, "warm": {"seconds": seconds}}

    shown = format_targets([line("ours", 2.0), line("convert", 50.0), line("delta-rs", 1.0)])
    assert "| 0.05 | 0.04 | yes |" in shown
    assert "| 1.2 | 2 | **no** |" in shown
    assert format_targets([line("ours", 2.0)]) == ""
    assert "\n\n- 10,000 files: at least 20 times" in format_targets([line("ours", 2.0), line("convert", 20.0)])


@pytest.mark.slow
def test_campaigns_are_measured_and_reported_beside_conversions(tmp_path):
    results, page = tmp_path / "results.jsonl", tmp_path / "RESULTS.md"
    machine = describe_machine(tmp_path)
    converted = {"case": "local-10k", "contender": "footers", "scale": 1.0, "files": 10, "warm": {"seconds": 1.0}}
    keep_lines(results, [{**converted, "machine": machine}])
    make_documents(tmp_path / "staging", 60)
    measured = {"planning": measure_planning(tmp_path / "staging"), "page": measure_page(tmp_path / "staging")}
    assert (measured["planning"]["tables"], measured["page"]["tables"]) == (60, 60)
    for seen in (1, 2):  # what is measured again takes the place of what was there
        line = {"case": PAGE, "contender": "60 tables", "tables": 60, "plan_bytes": seen, **measured}
        keep_lines(results, [{**line, "machine": machine}])
    for part, tables in (("simulation", "60"), ("scheduler", "2")):
        measure_campaigns([part, tables, f"--json={results}", f"--report={page}"])
    kept = [json.loads(line) for line in results.read_text().splitlines()]
    lines = {line["contender"]: line for line in kept if line["case"] != PAGE}
    assert (len(kept), len(lines)) == (5, 4)
    assert lines["60 tables"]["by_state"] == {"verified": 59, "needs_person": 1}
    group, campaign = (lines[f"{shape}, 2 tables"] for shape in ("mapped-group", "campaign"))
    assert (group["has_ended"], campaign["has_ended"]) == (True, True)
    assert group["task_instances"] == 2 + 3 * 2, "discover, report, and three tasks for each table"
    assert group["xcom_bytes_read_by_a_mapped_task"] > campaign["xcom_bytes_read_by_a_mapped_task"] > 0
    shown = page.read_text()
    for row in ("| footers | 10 |", "| one mapped group, 2 |", "| tables forgotten | 0 |", "of the tables | 2 bytes |"):
        assert row in shown
