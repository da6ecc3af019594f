"""The registry of actions: all that is to be known of one without doing it.

A new action is an entry of :data:`ACTIONS`, with its own statuses in :data:`STATUSES`, a function in :mod:`handlers`,
and a result in :mod:`results`. Importing this module imports no Spark: a DAG processor parses DAGs with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from airflow_hive_to_delta.core.results import (
    ConversionResult,
    CutOverResult,
    RollbackResult,
    SyncResult,
    TablePlan,
    TableResult,
    VacuumResult,
    VerifyResult,
)

#: Actions that have a result for each table.
ReportedAction = Literal["convert", "cut_over", "plan", "rollback", "sync", "vacuum", "verify"]
ActionName = Literal[ReportedAction, "discover", "list"]
#: Does an action, given a session and the request's arguments.
Handler = Callable[..., dict[str, Any]]

_HANDLERS = "airflow_hive_to_delta.job.handlers"


@dataclass(frozen=True)
class TableStatus:
    """A status that a table can end in, as a report shows it."""

    label: str
    #: The status whose colour it is shown in, because both mean the same; None: it has a colour of its own.
    colour_of: str | None = None
    #: Whether the table is a Delta table then.
    is_delta: bool = False
    #: Whether the table's files were counted, so that a zero is one and not an unknown number.
    has_file_count: bool = False
    #: Whether the table's rows should be known.
    has_row_count: bool = False


#: Every status that a table can end in, in the order of reports. ``skipped``: left out by choice. ``not_run``: an
#: earlier step of the run kept the table from starting. ``converted_earlier``: a plan found the log of an earlier run.
STATUSES: dict[str, TableStatus] = {
    "converted": TableStatus("Converted", is_delta=True, has_file_count=True, has_row_count=True),
    "already_delta": TableStatus("Already Delta", is_delta=True, has_row_count=True),
    "registered": TableStatus("Registered", is_delta=True, has_row_count=True),
    "refused": TableStatus("Refused"),
    "failed": TableStatus("Failed"),
    "skipped": TableStatus("Skipped"),
    "not_run": TableStatus("Not run"),
    "convertible": TableStatus("Convertible", has_file_count=True),
    "converted_earlier": TableStatus("Converted earlier", colour_of="already_delta", is_delta=True),
    "synced": TableStatus("Synced", is_delta=True, has_file_count=True),
    "unchanged": TableStatus("Unchanged", colour_of="already_delta", is_delta=True, has_file_count=True),
    "already_synced": TableStatus("Already synced", colour_of="registered", is_delta=True),
    "verified": TableStatus("Verified", is_delta=True, has_file_count=True, has_row_count=True),
    "vacuumed": TableStatus("Vacuumed", colour_of="converted", is_delta=True, has_file_count=True),
    "cut_over": TableStatus("Cut over", is_delta=True),
    "already_cut_over": TableStatus("Already cut over", colour_of="already_delta", is_delta=True),
    "rolled_back": TableStatus("Rolled back"),
    "not_delta": TableStatus("Not Delta", colour_of="skipped"),
}


@dataclass(frozen=True)
class GoalLabels:
    """How a report counts the tables that an action has succeeded with."""

    #: Completes a sentence: "3 of 4 tables ready in Delta".
    sentence: str
    #: The title of the number, and what stands below it.
    title: str
    detail: str


@dataclass(frozen=True)
class Action:
    """One action of a job."""

    #: The function that does it, as ``module:name``.
    handler: str
    #: What the result of a table is; None: the action has no result for each table.
    result_type: type[TableResult] | None = None
    #: The statuses (of :data:`STATUSES`) that the action is run for.
    goals: frozenset[str] = frozenset()
    labels: GoalLabels | None = None
    #: Whether the handler takes ``table_results``, where it keeps the result of each table as it ends.
    keeps_table_results: bool = False
    #: Whether it registers tables in a catalog, which has to outlive the job.
    registers_tables: bool = False
    #: Whether it only says what another action would do.
    is_forecast: bool = False
    #: Whether a report adds up the files and the bytes of the tables, and what it says beside the files.
    counts_files: bool = True
    files_note: str = ""
    #: Whether a report adds up the rows of the tables.
    counts_rows: bool = False

    def load_handler(self) -> Handler:
        """Import the function that does the action, and Spark with it."""
        module, _, name = self.handler.partition(":")
        handler: Handler = getattr(import_module(module), name)
        return handler


#: Statuses of tables that are Delta tables now.
DELTA_STATUSES = frozenset(name for name, status in STATUSES.items() if status.is_delta)

ACTIONS: dict[ActionName, Action] = {
    "convert": Action(
        f"{_HANDLERS}:convert_tables",
        ConversionResult,
        goals=DELTA_STATUSES,
        labels=GoalLabels("ready in Delta", "In Delta", "ready to read"),
        keeps_table_results=True,
        registers_tables=True,
        files_note="none copied",
        counts_rows=True,
    ),
    "cut_over": Action(
        f"{_HANDLERS}:cut_over_tables",
        CutOverResult,
        goals=frozenset({"cut_over", "already_cut_over"}),
        labels=GoalLabels("cut over to Delta", "Cut over", "under the old name"),
        keeps_table_results=True,
        counts_files=False,
    ),
    "discover": Action(f"{_HANDLERS}:discover_tables"),
    "list": Action(f"{_HANDLERS}:list_files"),
    "plan": Action(
        f"{_HANDLERS}:plan_tables",
        TablePlan,
        goals=frozenset({"convertible"}),
        labels=GoalLabels("convertible", "Convertible", "without a copy"),
        is_forecast=True,
        files_note="none copied",
    ),
    "rollback": Action(
        f"{_HANDLERS}:roll_back_tables",
        RollbackResult,
        goals=frozenset({"rolled_back", "not_delta"}),
        labels=GoalLabels("back in Hive", "In Hive", "as before"),
        keeps_table_results=True,
        counts_files=False,
    ),
    "sync": Action(
        f"{_HANDLERS}:sync_tables",
        SyncResult,
        # The first run of a sync converts, if it is to.
        goals=frozenset({"converted", "registered", "synced", "unchanged", "already_synced"}),
        labels=GoalLabels("in step with Hive", "In step", "with Hive"),
        keeps_table_results=True,
    ),
    "vacuum": Action(
        f"{_HANDLERS}:vacuum_tables",
        VacuumResult,
        goals=frozenset({"vacuumed"}),
        labels=GoalLabels("vacuumed", "Vacuumed", "of files that Delta removed"),
        keeps_table_results=True,
    ),
    "verify": Action(
        f"{_HANDLERS}:verify_tables",
        VerifyResult,
        goals=frozenset({"verified"}),
        labels=GoalLabels("equal to the original", "Verified", "equal to the original"),
        keeps_table_results=True,
        counts_rows=True,
    ),
}
