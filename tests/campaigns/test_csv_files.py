"""The plan in a spreadsheet: exported, edited by people in whichever program, and read back as decisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_to_delta.campaigns.csv_files import export_csv, import_csv
from airflow_hive_to_delta.campaigns.decisions import Decision, read_decisions
from airflow_hive_to_delta.campaigns.drafts import finish_plan
from airflow_hive_to_delta.campaigns.plan import read_plan, with_decisions
from airflow_hive_to_delta.cli import main
from airflow_hive_to_delta.core.errors import PermanentError
from tests.support.campaigns import NOON, add_decision, local_store, planned, row


def test_a_plan_goes_to_a_spreadsheet_and_comes_back_as_decisions(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    rows = planned(store, [row("a", owner="=ada"), row("b"), row("c", decision="refused", reason="bucketed"), row("d")])
    text = export_csv(rows, store.states())
    assert "sales.a,convert,0,'=ada,planned,1,1000" in text, "no cell is a formula"
    assert import_csv(store, text, by="ada", now=NOON) == []
    edited = text.replace("sales.b,convert,0,", "sales.b,exclude,7,bob").replace("sales.c,refused", "sales.c,convert")
    found = import_csv(store, edited, by="ada", now=NOON)
    assert [(d.table, d.decision, d.priority, d.owner, d.by) for d in found] == [
        ("sales.b", "exclude", 7, "bob", "ada"),
        ("sales.c", "retry", None, None, "ada"),
    ]
    decided = {each.table: each for each in with_decisions(rows, read_decisions(store))}
    assert (decided["sales.b"].decision, decided["sales.b"].priority) == ("exclude", 7)
    assert [d.decision for d in import_csv(store, "table,decision\nsales.b,convert\n", by="ada", now=NOON)] == [
        "include"
    ]
    with pytest.raises(PermanentError, match=r"line 2: the plan has no table 'x'; line 3: sales.a: priority is 'high'"):
        import_csv(store, "table,priority\nx,1\nsales.a,high\n", by="ada", now=NOON)
    with pytest.raises(PermanentError, match="no column table"):
        import_csv(store, "name\n", by="ada", now=NOON)


def test_the_command_exports_a_plan_and_reads_it_back(tmp_path: Path, capsys) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a"), row("b")])
    staging = f"file://{tmp_path}"
    assert main(["export-plan", staging, "lake"]) == 0
    text = capsys.readouterr().out
    assert main(["export-plan", staging, "lake", "--tables", "*.b", "--tables=*.a", "--sort=-table"]) == 0
    assert [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()] == ["table", "sales.b", "sales.a"]
    assert main(["export-plan", staging, "lake", "--owners=ada", "--decisions=convert"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    (tmp_path / "plan.csv").write_text(text.replace("sales.a,convert,0", "sales.a,exclude,3"))
    assert main(["import-plan", staging, "lake", str(tmp_path / "plan.csv"), "--by", "ada"]) == 0
    assert "1 decisions were added" in capsys.readouterr().out
    assert read_decisions(store)["sales.a"].priority == 3
    assert main(["export-plan", "gs://bucket", "lake"]) == 1
    assert "expected s3:// or file://" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "\ufefftable,decision,priority\r\nsales.a,exclude,3\r\n",
        "table;decision;priority\r\nsales.a;exclude;3\r\n;;\r\n",
        "sep=;\r\ntable;priority;decision\r\nsales.a;3;exclude\r\n",
        "Table\tPriority\tDecision\nsales.a\t3.0\tEXCLUDE\n",
        'priority,table,decision\n"3"," sales.a ","exclude"\n\n',
        "table,decision,priority,,\nsales.a,exclude,3,,\nsales.b\n",
    ],
)
def test_a_file_that_a_spreadsheet_has_written_its_own_way_is_read(tmp_path: Path, text: str) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a"), row("b")])
    found = import_csv(store, text, by="ada", now=NOON)
    assert [(each.table, each.decision, each.priority) for each in found] == [("sales.a", "exclude", 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table,priority\nsales.a,3\nsales.b,1\nsales.a,4\n", "line 4: sales.a has another line, 2"),
        ("table,priority,Priority\nsales.a,3,4\n", "more than one column priority"),
        ("sep=;\ntable;priority\nsales.x;3\n", "line 3: the plan has no table 'sales.x'"),
        ("table,priority\nsales.a,3.5\n", "priority is '3.5', expected a whole number"),
        ("table,priority\n,3\n", "the plan has no table ''"),
        ("", "no column table, only none; expected columns between commas, semicolons or tabs"),
    ],
)
def test_what_cannot_be_meant_is_named_and_nothing_is_decided(tmp_path: Path, text: str, message: str) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a"), row("b")])
    with pytest.raises(PermanentError, match=message):
        import_csv(store, text, by="ada", now=NOON)
    assert read_decisions(store) == {}


def test_a_line_that_nobody_has_edited_undoes_no_decision_that_was_made_since_the_export(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    finish_plan(store, [row("a"), row("b", owner="Jürgen")], run="one", now=NOON, dag_id="d")
    content = store.read_bytes("plan.csv") or b""
    assert content.startswith(b"\xef\xbb\xbf"), "else a spreadsheet takes Jürgen for JÃ¼rgen"
    text = content.decode("utf-8-sig")
    add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", "sales.a", decision="exclude", priority=5))
    edited = text.replace("sales.b,convert,0", "sales.b,convert,2")
    assert [each.table for each in import_csv(store, edited, by="bob", now=NOON)] == ["sales.b"]
    assert import_csv(store, edited, by="bob", now=NOON) == [], "it says the same"
    decided = {each.table: each for each in with_decisions(read_plan(store), read_decisions(store))}
    assert (decided["sales.a"].decision, decided["sales.a"].priority) == ("exclude", 5)
    later = export_csv(decided.values(), store.states(), read_decisions(store))
    found = import_csv(store, later.replace("sales.a,exclude,5", "sales.a,convert,5"), by="bob", now=NOON)
    assert [(each.table, each.decision) for each in found] == [("sales.a", "include")]


def test_a_table_that_is_named_as_a_formula_survives_the_spreadsheet(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    evil = row("x")
    evil.table, evil.reason = "=cmd|'/c calc'!A1", '@SUM(1+1)*cmd|"x"'
    planned(store, [evil])
    text = export_csv(read_plan(store), store.states())
    assert text.splitlines()[1].startswith("'=cmd|'/c calc'!A1,convert,0,")
    assert ",\"'@SUM(1+1)*cmd|" in text
    found = import_csv(store, text.replace(",convert,0", ",convert,9"), by="ada", now=NOON)
    assert [(each.table, each.priority) for each in found] == [(evil.table, 9)]


def test_the_command_takes_the_encodings_of_spreadsheets_and_says_which_one_it_cannot_read(
    tmp_path: Path, capsys
) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a", owner="Jürgen")])
    file = tmp_path / "plan.csv"
    command = ["import-plan", f"file://{tmp_path}", "lake", str(file), "--by", "ada"]
    for priority, encoding in ((1, "utf-8"), (2, "utf-8-sig"), (3, "utf-16")):
        file.write_text(f"table\tpriority\towner\nsales.a\t{priority}\tJürgen\n", encoding=encoding)
        assert main(command) == 0
        found = read_decisions(store)["sales.a"]
        assert (found.priority, found.owner) == (priority, None)
    file.write_text("table,owner\nsales.a,Jürgen\n", encoding="cp1252")
    assert main(command) == 1
    assert "plan.csv is not UTF-8" in capsys.readouterr().err
