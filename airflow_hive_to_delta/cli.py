"""The command ``airflow-hive-to-delta``."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from airflow_hive_to_delta.campaigns.csv_files import export_csv, import_csv
from airflow_hive_to_delta.campaigns.decisions import read_decisions
from airflow_hive_to_delta.campaigns.plan import PLAN, PlanDecision, filter_rows, read_plan, sort_rows, with_decisions
from airflow_hive_to_delta.campaigns.rebuild import rebuild_states
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import now
from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError
from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.jars import JARS_VARIABLE
from airflow_hive_to_delta.engines.jars import FetchError, fetch_jars


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="airflow-hive-to-delta",
        description="Prepare a machine for the migration, edit the plan of a campaign, and mend its documents.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser(
        "fetch-jars",
        help="fill a folder with the jars of the embedded Spark",
        description="Fill a folder with the jars of the embedded Spark (LocalSpark, local_session), for images without "
        f"a network. Sessions take them from there when the environment variable {JARS_VARIABLE} names the folder, and "
        "start faster.",
    )
    fetch.add_argument("folder", type=Path, help="where the jars go; some 60 MB, and 160 MB of classes")
    fetch.add_argument(
        "--no-classes", action="store_true", help="without the JVM's archive of classes, by which it starts faster"
    )
    export = commands.add_parser("export-plan", help="write the plan of a campaign as CSV to standard output")
    read_back = commands.add_parser("import-plan", help="read an edited plan back: each change is a decision")
    rebuild = commands.add_parser(
        "rebuild-states",
        help="make the states of a campaign's tables anew from the catalog and the Delta logs",
        description="Make the states of a campaign's tables anew, where documents are lost or say something else than "
        "the catalog and the Delta logs. Tables and logs are only read.",
    )
    for command in (export, read_back, rebuild):
        command.add_argument("staging", help="the staging root, such as s3://bucket/staging")
        command.add_argument("campaign", help="the name of the campaign")
    export.add_argument("--tables", action="append", help="only tables that fit this pattern, such as 'sales.*'")
    export.add_argument("--owners", action="append", help="only tables of owners that fit this pattern")
    export.add_argument("--decisions", action="append", choices=get_args(PlanDecision), help="only tables decided so")
    export.add_argument(
        "--sort",
        metavar="COLUMNS",
        help="such as owner,-bytes; a minus before a column turns its order round (--sort=-bytes)",
    )
    read_back.add_argument("file", type=Path, help="the edited CSV file")
    read_back.add_argument("--by", required=True, help="the name of the person who decided")
    rebuild.add_argument("--region", help="the AWS region of tables that name none")
    rebuild.add_argument(
        "--probation-days",
        type=int,
        default=14,
        help="the probation of the campaign after a cut-over; 14 when not given",
    )
    chosen = parser.parse_args(arguments)
    try:
        match chosen.command:
            case "export-plan":
                print(_export_plan(chosen), end="")
            case "import-plan":
                print(_import_plan(chosen.staging, chosen.campaign, chosen.file, chosen.by))
            case "rebuild-states":
                print(_rebuild_states(chosen))
            case _:
                print(_fetch_jars(chosen.folder, archive_classes=not chosen.no_classes))
    except (HiveToDeltaError, FetchError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _fetch_jars(folder: Path, *, archive_classes: bool) -> str:
    with needs_extra("local", "The embedded Spark"):
        import pyspark  # noqa: F401
    count = fetch_jars(folder, archive_classes=archive_classes)
    where = folder.absolute()
    return f"{count} jars are in {where}. Set {JARS_VARIABLE}={where} where LocalSpark runs"


def _export_plan(chosen: argparse.Namespace) -> str:
    store = CampaignStore.open(chosen.staging, chosen.campaign)
    decisions = read_decisions(store)
    rows = with_decisions(read_plan(store), decisions)
    wanted = filter_rows(rows, tables=chosen.tables, owners=chosen.owners, decisions=chosen.decisions)
    ordered = sort_rows(wanted, *(chosen.sort.split(",") if chosen.sort else ()))
    return export_csv(ordered, store.states(), decisions)


def _import_plan(staging: str, campaign: str, file: Path, by: str) -> str:
    store = CampaignStore.open(staging, campaign)
    content = file.read_bytes()
    try:
        text = content.decode("utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise PermanentError(f"{file} is not UTF-8: {error}. Save it as CSV UTF-8, and read it again") from error
    decisions = import_csv(store, text, by=by, now=now())
    return f"{len(decisions)} decisions were added. The next wave of {campaign} takes them up"


def _rebuild_states(chosen: argparse.Namespace) -> str:
    store = CampaignStore.open(chosen.staging, chosen.campaign)
    rows = read_plan(store, with_definitions=True)
    if not rows:
        raise PermanentError(
            f"{store.location(PLAN)} has no table, expected the plan of the campaign. Have its DAG plan first"
        )
    written = rebuild_states(
        store,
        rows,
        run="rebuild-states",
        now=now(),
        options=ConversionOptions(region=chosen.region),
        probation=dt.timedelta(days=chosen.probation_days),
    )
    counts = Counter(state.state for state in written.values())
    return f"{len(written)} of {len(rows)} states were written" + "".join(
        f"; {count} {state}" for state, count in counts.items()
    )


if __name__ == "__main__":
    sys.exit(main())
