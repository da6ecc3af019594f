"""Writing a report to the staging root and pushing it, for the report of a run and for a plan."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.operators.staging import RunFolder, browser_url, plain_uri
from airflow_hive_to_delta.report.html import render_html
from airflow_hive_to_delta.report.outcomes import failed_tables

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The XCom with the report.
REPORT = "report"
#: A report with more text than this travels without its tables, which are in the files: XComs are rows of a database.
_MOST_TEXT = 48_000


def describe_run(context: Context) -> dict[str, str]:
    """What a report says of its run: the DAG, the run's id, and when it started."""
    run: Any = context["dag_run"]
    return {"dag_id": run.dag_id, "run_id": run.run_id, "started": str(run.start_date or "")}


def seconds_since_start(context: Context) -> float | None:
    """Seconds since the run started; None when that is not known."""
    run: Any = context["dag_run"]
    return None if run.start_date is None else (dt.datetime.now(dt.UTC) - run.start_date).total_seconds()


def publish_report(context: Context, folder: RunFolder, name: str, report: dict[str, Any]) -> dict[str, Any]:
    """Write a report as JSON and as a page, and push it as the XCom ``report``.

    :param name: of the two files, without their endings.
    :returns: what was pushed: the report with ``json`` and ``html``, the addresses of the files, ``page``, where a
        person finds the page, and ``failed``, the names of the failed tables.
    """
    as_json, as_html = folder.file(f"{name}.json"), folder.file(f"{name}.html")
    as_json.write_text(json.dumps(report, indent=1))
    as_html.write_text(render_html(report))
    failed = failed_tables(report)
    where = {"json": plain_uri(as_json), "html": plain_uri(as_html), "page": browser_url(as_html)}
    pushed = {**report, "failed": failed, **where}
    if len(json.dumps(pushed)) > _MOST_TEXT:
        pushed = {**pushed, "tables": [], "failed": failed[:100]}
    context["ti"].xcom_push(REPORT, pushed)
    return pushed
