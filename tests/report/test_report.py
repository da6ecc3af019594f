"""The migration report: what it counts, what it hides, and what a real browser makes of its page."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import pytest

from airflow_hive_to_delta import ConversionResult
from airflow_hive_to_delta.campaigns.states import STATES, StateName, TableState
from airflow_hive_to_delta.campaigns.view.report import render_campaign_report
from airflow_hive_to_delta.core.results import (
    CutOverResult,
    RollbackResult,
    SyncResult,
    TablePlan,
    VacuumResult,
    VerifyResult,
)
from airflow_hive_to_delta.job.actions import STATUSES
from airflow_hive_to_delta.report.html import render_html
from airflow_hive_to_delta.report.outcomes import FAILURES, GOALS, RESULTS, TableOutcome, build_report, failed_tables
from tests.support.browser import Browser
from tests.support.imports import imported_by
from tests.support.project import PROJECT

RUN = {"dag_id": "migrate", "run_id": "manual__1"}
HOSTILE = "<script>alert(1)</script>"
#: What can become of a table in a run that converts.
CONVERSION = ["converted", "already_delta", "registered", "refused", "failed", "skipped", "not_run"]


def outcomes() -> list[TableOutcome]:
    """One table of every status of a conversion, one of them with a name that wants to be markup."""
    return [
        TableOutcome("sales.orders", "converted", "main.sales.orders", 1_200, 5 * 10**9, 42_000_000, 61.0, version=0),
        TableOutcome("sales.items", "converted", "main.sales.items", 30, 80_000, 900, 4.5, notes=["A note"]),
        TableOutcome("sales.old", "already_delta", file_count=3, byte_count=4_000_000, duration_seconds=0.5),
        TableOutcome("sales.seen", "registered", "main.sales.seen", 5, 6_000_000, 70, 1.5),
        TableOutcome("sales.orc", "refused", error="It is ORC, expected Parquet"),
        TableOutcome(f"sales.{HOSTILE}", "failed", error=f"Denied & {HOSTILE}", retryable=False, duration_seconds=2.0),
        TableOutcome("sales.later", "not_run"),
        TableOutcome("sales.tmp", "skipped"),
    ]


def report() -> dict[str, Any]:
    return build_report(outcomes(), title="Hive to Delta", run=RUN)


# What the report says


def test_failures_come_first_then_the_rest_by_name() -> None:
    names = [table["table"].removeprefix("sales.") for table in report()["tables"]]
    assert names == [HOSTILE, "later", "items", "old", "orc", "orders", "seen", "tmp"]


def test_a_refused_or_skipped_table_is_no_failure_and_one_that_did_not_run_is() -> None:
    assert failed_tables(report()) == [f"sales.{HOSTILE}", "sales.later"]


def test_totals_are_of_the_tables_that_are_delta_now_and_times_of_all() -> None:
    failed = TableOutcome("a.b", "failed", file_count=7, byte_count=7, row_count=7, duration_seconds=2)
    totals = build_report([*outcomes(), failed], title="", run={})["totals"]
    assert totals == {
        "tables": 9,
        "by_status": {**dict.fromkeys(STATUSES, 0), **dict.fromkeys(CONVERSION, 1), "converted": 2, "failed": 2},
        "empty": 0,
        "files": 1_238,
        "bytes": 5_010_080_000,
        "rows": 42_000_970,
        "seconds": 71.5,
        "elapsed_seconds": None,
    }


def test_a_later_outcome_of_a_table_replaces_the_earlier_one() -> None:
    tries = [TableOutcome.of_error("d.t", "lost", True), TableOutcome("d.t", "converted", file_count=2)]
    made = build_report(tries, title="", run={})
    assert failed_tables(made) == []
    assert (made["totals"]["tables"], made["totals"]["files"]) == (1, 2)


def test_the_report_and_its_outcomes_come_back_from_json() -> None:
    made = report()
    assert json.loads(json.dumps(made)) == made
    assert [TableOutcome.from_dict(table).to_dict() for table in made["tables"]] == made["tables"]


def test_a_run_without_tables_has_a_report_and_a_page() -> None:
    empty = build_report([], title="Nothing", run={})
    assert empty["totals"]["tables"] == 0
    assert '<p class="verdict bad">The run found no table.</p>' in render_html(empty)


def test_an_outcome_takes_over_a_conversion_result() -> None:
    result = ConversionResult("d.t", "c.d.t", True, "converted", 2, 30, 4, "s3://b/t", version=0, features=["x"])
    result.notes, result.message, result.duration_seconds = ["n"], "m", 1.5
    assert TableOutcome.of_result(result.to_dict()) == TableOutcome(
        "d.t", "converted", "c.d.t", 2, 30, 4, 1.5, "s3://b/t", 0, ["x"], ["n", "m"]
    )


def test_an_outcome_takes_over_the_verification_of_a_conversion() -> None:
    found = VerifyResult("d.t", "s3://b/t", "counts", True, 0, 2, 30, 4, duration_seconds=0.5, notes=["n", "o"])
    result = ConversionResult("d.t", "", True, "converted", 2, 30, 4, duration_seconds=1.5, notes=["n"])
    result = replace(result, verification=found, verified={"counts": 0})
    verified = TableOutcome.of_result(result.to_dict())
    assert (verified.status, verified.verified, verified.duration_seconds) == ("converted", {"counts": 0}, 2.0)
    assert verified.notes == ["Verified by counts at version 0: 2 files and 4 rows", "n", "o"]

    mismatch = {"partition": "day=1", "what": "rows", "original": 5, "delta": 4}
    found = replace(found, success=False, mismatches=[mismatch], mismatch_count=2, error="The JVM is gone", notes=[])
    result = replace(result, success=False, error="It was killed", retryable=False, verification=found, verified={})
    failed = TableOutcome.of_result(result.to_dict())
    assert (failed.status, failed.error, failed.file_count) == ("failed", "It was killed", 2)
    assert failed.notes == ["day=1: rows: original 5, Delta 4", "1 more difference"]


@pytest.mark.parametrize(
    ("action", "result"),
    [
        ("convert", ConversionResult("d.t", "", False, "failed")),
        ("cut_over", CutOverResult("d.t", "s3://b/t", False, "failed")),
        ("plan", TablePlan("d.t", "failed")),
        ("rollback", RollbackResult("d.t", "s3://b/t", False, "failed")),
        ("sync", SyncResult("d.t", "s3://b/t", False, "failed")),
        ("vacuum", VacuumResult("d.t")),
        ("verify", VerifyResult("d.t", "s3://b/t", "full", False)),
    ],
)
def test_an_outcome_takes_over_the_kind_of_the_error(action: Any, result: Any) -> None:
    failed = replace(result, error="gone", retryable=False, error_kind="StaleFileListError")
    outcome = TableOutcome.of_result(failed.to_dict(), action)
    assert (outcome.status, outcome.error_kind) == ("failed", "StaleFileListError")
    assert outcome.advice.startswith("Clear the task that lists this table's files")


def plan_outcomes() -> list[TableOutcome]:
    plans = [
        TablePlan(
            "sales.orders", "convertible", "s3://b/orders", None, 1_200, 5 * 10**9, 1_500, 3,
            features=["typeWidening"], unreadable_by=["delta-rs and DuckDB: absolute paths"], notes=["A note"],
        ),
        TablePlan("sales.items", "convertible", "s3://b/items", None, 30, 80_000),
        TablePlan("sales.old", "converted", "s3://b/old", 4, 3),
        TablePlan("sales.theirs", "already_delta", "s3://b/theirs", 7),
        TablePlan("sales.odd", "refused", schema_conflicts=["id does not fit", HOSTILE], error="id does not fit"),
        TablePlan("sales.denied", "failed", error="AccessDenied", retryable=False),
    ]  # fmt: skip
    return [TableOutcome.of_plan(plan.to_dict()) for plan in plans]


def test_an_outcome_takes_over_a_plan_and_says_what_is_wrong_once() -> None:
    orders, items, old, theirs, odd, denied = plan_outcomes()
    assert orders == TableOutcome(
        "sales.orders", "convertible", "", 1_200, 5 * 10**9, None, 0.0, "s3://b/orders", None, ["typeWidening"],
        [
            "Partitions: 1,500, 3 with files outside the table's location",
            "Not readable by delta-rs and DuckDB: absolute paths",
            "A note",
        ],
    )  # fmt: skip
    assert items.notes == []
    assert [(outcome.status, outcome.version) for outcome in (old, theirs)] == [
        ("converted_earlier", 4), ("already_delta", 7),
    ]  # fmt: skip
    assert (odd.status, odd.error, odd.notes) == ("refused", "id does not fit", [f"Schema conflict: {HOSTILE}"])
    assert (denied.status, denied.retryable) == ("failed", False)


def test_a_plan_has_a_report_of_its_own() -> None:
    made = build_report(plan_outcomes(), title="Plan", run=RUN, action="plan")
    assert made["totals"]["files"] == 1_230
    assert failed_tables(made) == ["sales.denied"]
    page = render_html(made)
    assert "2 of 6 tables can be converted. 2 in Delta already. 1 would fail." in page
    assert ">0 B<" not in page, "nobody counts the bytes of what is a Delta table already"
    assert HOSTILE not in page
    assert "Not readable by delta-rs and DuckDB: absolute paths" in page
    assert ">Converted earlier<" in page
    assert "unknown" not in page.partition("sales.<wbr>orders")[2].partition("</tr>")[0], "a plan counts no rows"
    refused = [TableOutcome("a.b", "refused", error="ORC")]
    assert "0 of 1 table can be converted." in render_html(build_report(refused, title="", run={}, action="plan"))


@pytest.mark.parametrize(
    ("action", "result", "expected"),
    [
        (
            "verify",
            VerifyResult("d.t", "s3://b/t", "counts", True, 3, 4, 50, 6, duration_seconds=1.5),
            TableOutcome("d.t", "verified", "", 4, 50, 6, 1.5, "s3://b/t", 3, verified={"counts": 3}),
        ),
        (
            "verify",
            VerifyResult(
                "d.t", "s3://b/t", "full", False, mismatch_count=3,
                mismatches=[
                    {"partition": "p=1", "what": "rows", "original": 5, "delta": 4},
                    {"partition": "", "what": "files", "original": 2, "delta": 1},
                ],
            ),
            TableOutcome(
                "d.t", "failed", location="s3://b/t", error="The Delta table differs from its original",
                notes=["p=1: rows: original 5, Delta 4", "files: original 2, Delta 1", "1 more difference"],
            ),
        ),
        (
            "sync",
            SyncResult("d.t", "s3://b/t", True, "synced", 5, 2, 7, 1, 800, 90, ["n"]),
            TableOutcome(
                "d.t", "synced", "", 7, 800, location="s3://b/t", version=5, notes=["7 files added, 1 removed", "n"]
            ),
        ),
        (
            "sync",
            SyncResult("d.t", "s3://b/t", True, "unchanged", 5),
            TableOutcome("d.t", "unchanged", location="s3://b/t", version=5),
        ),
        (
            "vacuum",
            VacuumResult("d.t", ["s3://o/1", "s3://o/2"], orphaned_bytes=3_000, notes=["1 is too young"]),
            TableOutcome(
                "d.t", "vacuumed", "", 2, 3_000,
                notes=["A dry run: 2 files of 3,000 bytes would be deleted", "1 is too young"],
            ),
        ),
        (
            "vacuum",
            VacuumResult("d.t", ["a"], ["a"], 9, 9, False, error="lost", retryable=True),
            TableOutcome(
                "d.t", "failed", "", 1, 9, notes=["1 file of 9 bytes was deleted"], error="lost", retryable=True
            ),
        ),
        (
            "rollback",
            RollbackResult("d.t", "s3://b/t", True, "rolled_back", "s3://b/t/.x", ["c.t"], ["d.t"], [1, 2], 3),
            TableOutcome(
                "d.t", "rolled_back", location="s3://b/t",
                notes=[
                    "The log lies at s3://b/t/.x now", "Dropped from the catalog: c.t",
                    "As it was in the catalog again: d.t", "Versions of other writers that are lost: 1, 2",
                    "3 files that Delta wrote were moved aside",
                ],
            ),
        ),
        (
            "cut_over",
            CutOverResult("d.t", "s3://b/t", True, "already_cut_over", 1, "s3://b/t/old.json"),
            TableOutcome(
                "d.t", "already_cut_over", location="s3://b/t", version=1,
                notes=["The old definition is kept at s3://b/t/old.json"],
            ),
        ),
    ],
)  # fmt: skip
def test_an_outcome_takes_over_the_result_of_every_action(action: Any, result: Any, expected: TableOutcome) -> None:
    assert TableOutcome.of_result(result.to_dict(), action) == expected


def test_a_result_is_taken_for_that_of_the_action_only() -> None:
    with pytest.raises(ValueError, match="action is 'list', expected one of convert, "):
        TableOutcome.of_result({}, "list")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ConversionResult has no level"):
        TableOutcome.of_result(VerifyResult("d.t", "s3://b/t", "full", True).to_dict())


@pytest.mark.parametrize(
    ("action", "statuses", "headline"),
    [
        ("convert", ["converted", "verified"], "Every table is ready in Delta: 2 of 2."),
        ("convert", ["converted", "rolled_back"], "No table failed. 1 of 2 tables ready in Delta."),
        ("plan", ["convertible"], "1 of 1 table can be converted."),
        ("sync", ["synced", "unchanged", "already_synced"], "Every table is in step with Hive: 3 of 3."),
        ("sync", ["converted", "registered"], "Every table is in step with Hive: 2 of 2."),
        ("sync", ["synced", "failed"], "1 of 2 tables failed or did not run. 1 in step with Hive."),
        ("verify", ["verified"], "Every table is equal to the original: 1 of 1."),
        ("vacuum", ["vacuumed", "skipped"], "No table failed. 1 of 2 tables vacuumed."),
        ("rollback", ["rolled_back", "not_delta"], "Every table is back in Hive: 2 of 2."),
        ("cut_over", ["cut_over", "already_cut_over"], "Every table is cut over to Delta: 2 of 2."),
    ],
)
def test_the_headline_fits_the_action(action: Any, statuses: list[Any], headline: str) -> None:
    tables = [TableOutcome(f"d.t{number}", status) for number, status in enumerate(statuses)]
    page = render_html(build_report(tables, title="", run={}, action=action))
    assert f">{headline}</p>" in page
    assert GOALS.keys() == RESULTS.keys()


@pytest.mark.parametrize(
    ("outcome", "advice"),
    [
        (TableOutcome.of_error("d.t", "slow", True), "trying again may help"),
        (
            TableOutcome.of_error("d.t", "denied", False),
            "then clear this table's red task",
        ),
        (TableOutcome.of_error("d.t", "odd"), "Fix what the error names"),
        (TableOutcome.of_error("d.t", ""), "Read the log"),
        (TableOutcome.of_error("d.t", "gone", False, "StaleFileListError"), "Clear the task that lists"),
        (TableOutcome.of_error("d.t", "List the files again", False, "MissingError"), "Fix what the error names"),
        (TableOutcome("d.t", "not_run"), "^Clear this table's red task .* fix and clear the step before them"),
        (TableOutcome("d.t", "refused"), "as it was. .*, then clear the task that discovers tables with what"),
        (TableOutcome("d.t", "failed", advice="Ask Ann"), "^Ask Ann$"),
        (TableOutcome("d.t", "converted"), "^$"),
    ],
)
def test_every_table_that_needs_something_says_what_to_do(outcome: TableOutcome, advice: str) -> None:
    assert re.search(advice, outcome.advice)


def test_a_status_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"status of d.t is 'done', expected one of converted, .*, not_run"):
        TableOutcome("d.t", "done")  # type: ignore[arg-type]


def test_importing_the_report_loads_no_heavy_library() -> None:
    imported = imported_by("import airflow_hive_to_delta.report.outcomes, airflow_hive_to_delta.report.html")
    assert not imported & {"pyspark", "pyarrow", "boto3", "botocore", "pandas", "numpy", "airflow", "delta", "jinja2"}


# The page as text


def test_names_and_errors_are_text_and_never_markup() -> None:
    hostile = TableOutcome(
        HOSTILE, "failed", HOSTILE, location=HOSTILE, features=[HOSTILE], notes=[HOSTILE], error=HOSTILE, byte_count=1
    )
    page = render_html(build_report([hostile], title=HOSTILE, run={HOSTILE: '"><img src=x>'}))
    assert HOSTILE not in page
    assert page.count("<script>") == 1
    assert "<img" not in page


def test_a_name_that_is_not_unicode_can_still_be_written() -> None:
    page = render_html(build_report([TableOutcome("d.\udce4", "converted")], title="", run={}))
    assert "udce4" in page.encode().decode()


@pytest.mark.parametrize("failed", [False, True])
def test_ten_thousand_tables_are_a_page_of_a_few_megabytes(failed: bool) -> None:
    tables = [
        TableOutcome(
            f"database_{i % 40}.table_{i:05}", "failed" if failed else "converted",
            f"main.database_{i % 40}.table_{i:05}", i, i * 10**7, i * 1_000, i / 100,
            f"s3://a-bucket/warehouse/database_{i % 40}.db/table_{i:05}", 0,
            error="A long story. " * 100 if failed else None,
        )
        for i in range(1, 10_001)
    ]  # fmt: skip
    page = render_html(build_report(tables, title="All", run=RUN))
    assert len(page) < 7_000_000
    assert page.count('<th scope="row">') == 10_000
    assert page.count('class="size"') == 30
    assert "The 30 largest of 10,000 tables" in page
    assert ("whole in the JSON report" in page) == failed


def test_a_status_and_a_state_of_one_name_have_one_colour_in_light_and_dark() -> None:
    templates = PROJECT / "airflow_hive_to_delta" / "report" / "templates"
    light, dark = ((templates / f"{name}.css").read_text() for name in ("look", "dark"))
    rules = dict(re.findall(r"^\.([\w., ]+) \{ --tone: var\(--(\w+)\); fill: ", light, re.MULTILINE))
    coloured = {name.strip(" ."): colour for names, colour in rules.items() for name in names.split(",")}
    shown = {status.colour_of or name for name, status in STATUSES.items()} | STATES.keys()
    assert shown == coloured.keys()
    assert {name for name in STATUSES.keys() & STATES.keys() if STATUSES[name].colour_of} == set()
    for style in (light, dark):
        assert set(coloured.values()) <= set(re.findall(r"--(\w+): #", style))
    page = PROJECT / "airflow_hive_to_delta" / "plugins" / "page" / "static" / "campaign.css"
    for style in (page.read_text(), (templates / "report.css").read_text().partition("@media print")[0]):
        assert re.findall(r"#[0-9a-f]{3,8}\b|prefers-color-scheme", style) == [], "all colours come from the look"


# The page in a browser


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(render_html(report()), encoding="utf-8")
    return path


def drawn(browser: Browser, names: list[str]) -> dict[str, int]:
    """How many pixels of the screenshot have each of the page's named colours."""
    shot = browser.screenshot()
    pixels = Counter({colour: count for count, colour in shot.getcolors(shot.width * shot.height) or []})
    style = "getComputedStyle(document.documentElement)"
    hexes = {name: browser.evaluate(f"{style}.getPropertyValue('--{name}')") for name in names}
    return {name: pixels[tuple(bytes.fromhex(colour.strip("# ")))] for name, colour in hexes.items()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_the_chart_and_every_status(browser: Browser, page: Path, scheme: str) -> None:
    browser.open(page, scheme)
    pixels = drawn(browser, ["size", "time", *CONVERSION])
    assert min(pixels["size"], pixels["time"]) > 5_000, "bars, of which the longest is some 400 pixels wide"
    # A dot in the legend, a dot in each row, and a part of the bar above them.
    assert {status: count for status, count in pixels.items() if count < 500} == {}
    browser.evaluate("document.querySelectorAll('.chart, .pill, .share').forEach(element => element.remove())")
    assert drawn(browser, ["size", "time", "refused", "not_run"]) == dict.fromkeys(
        ["size", "time", "refused", "not_run"], 0
    ), "the colours were theirs"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_status_of_every_action_has_a_word_and_a_colour(browser: Browser, page: Path, scheme: str) -> None:
    tables = [TableOutcome(f"d.{status}", status) for status in STATUSES]  # type: ignore[arg-type]
    page.write_text(render_html(build_report(tables, title="", run={})))
    browser.open(page, scheme)
    colour = "getComputedStyle(pill).color"
    found = browser.evaluate(f"[...document.querySelectorAll('tbody .pill')].map(pill => [pill.innerText, {colour}])")
    assert len({word for word, _ in found}) == len(found) == len(STATUSES)
    text = browser.evaluate("getComputedStyle(document.body).color")
    assert [word for word, drawn_in in found if drawn_in == text] == []
    failed = {drawn_in for word, drawn_in in found if word in ("Failed", "Not run")}
    assert [word for word, drawn_in in found if drawn_in in failed] == ["Failed", "Not run"]
    assert len(failed) == len(FAILURES)


def test_a_browser_shows_a_row_and_two_bars_for_each_table(browser: Browser, page: Path) -> None:
    browser.open(page)
    rows = browser.evaluate(
        "[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(c => c.innerText))"
    )
    assert [len(row) for row in rows] == [8] * 8
    assert rows[0][:2] == ["Failed", f"sales.{HOSTILE}"]
    assert rows[0][7].startswith(f"Denied & {HOSTILE}\n\nWhat to do Fix what the error names")
    assert rows[5][2:7] == ["main.sales.orders\nversion 0", "1,200", "5.0 GB", "42,000,000", "1 min 01 s"]
    assert browser.evaluate("document.querySelector('[title=\"5,000,000,000 bytes\"]').innerText") == "5.0 GB"
    bars = "[...document.querySelectorAll('.chart .{}')].map(bar => bar.getBoundingClientRect().width)"
    sizes, times = browser.evaluate(bars.format("size")), browser.evaluate(bars.format("time"))
    assert len(sizes) == len(times) == 5, "the tables with a size or a time"
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(max(times))
    assert sizes[0] > 200
    assert browser.evaluate("document.querySelectorAll('script').length") == 1


def test_the_page_asks_no_other_host_or_file_and_breaks_no_rule_of_its_own(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.requests_elsewhere(page) == []
    assert browser.events("Log.entryAdded") == []
    assert browser.events("Runtime.exceptionThrown") == []
    # A hint to connect is no request that a browser would tell of.
    assert not re.search(r"<link|@import|url\(|https?:", page.read_text())


def test_a_page_that_asks_elsewhere_is_caught_and_the_policy_of_the_report_keeps_it_back(
    browser: Browser, page: Path
) -> None:
    intruder = "<img src='http://elsewhere.invalid/x.png'><script>document.title = 1</script>"
    spoilt = page.read_text().replace("<main>", f"<main>{intruder}")
    page.write_text(re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", spoilt))
    browser.open(page)
    assert [urlsplit(url).hostname for url in browser.requests_elsewhere(page)] == ["elsewhere.invalid"]
    assert browser.evaluate("document.title") == "1"
    page.write_text(spoilt)
    browser.open(page)
    assert browser.requests_elsewhere(page) == []
    assert browser.evaluate("document.title") == "Hive to Delta"
    assert len(browser.events("Log.entryAdded")) == 2


def test_the_table_can_be_sorted_and_filtered(browser: Browser, page: Path) -> None:
    browser.open(page)
    shown = "[...document.querySelectorAll('tbody tr:not([hidden]) th')].map(th => th.innerText.replace('sales.', ''))"
    browser.evaluate("document.querySelectorAll('thead button')[4].click()")
    assert browser.evaluate(shown)[:4] == ["orders", "seen", "old", "items"]
    browser.evaluate("document.querySelectorAll('thead button')[4].click()")
    assert browser.evaluate(shown)[-4:] == ["items", "old", "seen", "orders"]
    assert browser.evaluate("document.querySelector('th[aria-sort]').ariaSort") == "ascending"
    browser.evaluate("document.querySelector('input').value = 'CONVERTED'")
    browser.evaluate("document.querySelector('input').dispatchEvent(new Event('input'))")
    assert browser.evaluate(shown) == ["items", "orders"]
    assert browser.evaluate("document.querySelector('output').value") == "2 of 8 tables"


def test_without_its_script_the_page_shows_all_of_the_report(browser: Browser, page: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert browser.evaluate("document.querySelectorAll('tbody tr').length") == 8
        assert browser.evaluate("document.querySelector('.filter').checkVisibility()") is False
        assert drawn(browser, ["size"])["size"] > 5_000
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_phone_shows_errors_and_bars_without_scrolling_sideways(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    assert browser.evaluate("document.documentElement.scrollWidth") == 390
    inside = "element => { const box = element.getBoundingClientRect(); return box.left >= 0 && box.right <= 390; }"
    for shown in (".error", ".advice", ".chart .track", ".chart b", "tbody th", ".pill"):
        assert browser.evaluate(f"[...document.querySelectorAll('{shown}')].every({inside})"), shown
    assert browser.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
    assert min(drawn(browser, ["size", "time"]).values()) > 5_000


def test_columns_that_an_action_leaves_empty_are_left_out(browser: Browser, page: Path) -> None:
    rolled_back = TableOutcome("d.t", "rolled_back", duration_seconds=1.0, notes=["The log lies elsewhere now"])
    made = build_report([rolled_back], title="", run={}, action="rollback", elapsed_seconds=3_725.0)
    page.write_text(render_html(made))
    browser.open(page)
    heads = browser.evaluate("[...document.querySelectorAll('thead th')].map(head => head.innerText)")
    assert heads == ["Status", "Table", "Time", "Error and what to do, notes"]
    cards = browser.evaluate("[...document.querySelectorAll('.cards li')].map(card => card.innerText.split('\\n'))")
    assert [card[:2] for card in cards] == [
        ["Tables", "1"],
        ["In Hive", "1"],
        ["Failed", "0"],
        ["Elapsed", "1 h 02 min"],
        ["Work", "1.0 s"],
    ]


def test_a_table_with_nothing_at_its_location_stands_out(browser: Browser, page: Path) -> None:
    empty = TableOutcome("d.empty", "converted", is_empty=True, notes=["Nothing is at the location of d.empty"])
    made = build_report([empty, TableOutcome("d.full", "converted", file_count=1)], title="", run={})
    page.write_text(render_html(made))
    browser.open(page)
    assert made["totals"]["empty"] == 1
    verdicts = browser.evaluate("[...document.querySelectorAll('.verdict')].map(verdict => verdict.innerText)")
    assert verdicts[1] == (
        "One of them has no data file: an empty table, a wrong location, or partitions that the catalog lacks."
    )
    assert browser.evaluate("document.querySelector('tr:has(.empty) th').innerText") == "d.empty"
    colour = "getComputedStyle(document.querySelector('{}')).color"
    shown = [browser.evaluate(colour.format(x)) for x in (".empty", ".verdict.warning", ".cards .warning strong")]
    assert len(set(shown)) == 1


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_a_browser_shows_the_report_of_a_campaign(browser: Browser, page: Path, width: int, scheme: str) -> None:
    states = [
        TableState(f"sales.{name}", name, bytes=10**number, owner="risk", updated=f"2026-11-18T03:{number:02}:00+00:00")
        for number, name in enumerate(get_args(StateName))
    ]
    states[0] = replace(states[0], table=f"sales.{HOSTILE}", error=HOSTILE, advice=HOSTILE, notes=[HOSTILE])
    wave = {"run": "r", "started": "2026-11-18T02:00:00+00:00", "ended": None, "tables": 9, "bytes": 10**9}
    summary = {"campaign": HOSTILE, "phase": "convert", "waves": [wave], "forecast": "2026-11-19T02:00:00+00:00"}
    noon = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
    page.write_text(render_campaign_report(states, summary, RUN, run="r", now=noon))
    browser.open(page, scheme, width)
    assert browser.requests_elsewhere(page) == []
    assert browser.events("Log.entryAdded") == []
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate("document.querySelector('h1').innerText") == HOSTILE
    assert browser.evaluate("document.querySelectorAll('.share rect').length") == len(states)
    pixels = drawn(browser, ["size", "time", "failed", "verified", "cut_over", "not_run"])
    assert {name: count for name, count in pixels.items() if count < 200} == {}, "two curves, bars and dots"
    browser.evaluate("document.querySelector('input').value = 'needs a person'")
    browser.evaluate("document.querySelector('input').dispatchEvent(new Event('input'))")
    assert browser.evaluate("document.querySelector('output').value") == f"1 of {len(states)} tables"
