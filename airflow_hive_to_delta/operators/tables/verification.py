"""Verifications that a converting task and a verifying one share: why they failed, and whether they still count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.operators.aws.identity import aws_clients
from airflow_hive_to_delta.report.outcomes import LIST_AGAIN, TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Of a table that differs; a batch of them has to travel.
_MOST_NOTES = 10


def run_name(context: Context) -> str:
    """The name of the DAG run, as the first commit of each table that it converts has it as ``run_id``."""
    dag_run: Any = context["dag_run"]
    return f"{dag_run.dag_id}/{dag_run.run_id}"


def explain_failed_verification(
    outcome: TableOutcome, result: Mapping[str, Any], advice: str, *, kept: bool
) -> TableOutcome:
    """The outcome of a table that was compared and is not verified: with what to do, and with not too many notes.

    :param result: the :class:`VerifyResult`, as a dict.
    :param advice: what to do about a table that differs from its original.
    :param kept: whether all differences are kept with the results under the staging root.
    """
    if result["mismatch_count"] or outcome.advice == LIST_AGAIN:
        # Another list alone would hide that the table is not what it was made from.
        outcome = replace(outcome, advice=advice)
    if len(outcome.notes) > _MOST_NOTES:
        where = "with the results under the staging root" if kept else "not kept: pass staging"
        more = f"{len(outcome.notes) - _MOST_NOTES} more of what differs: {where}"
        outcome = replace(outcome, notes=[*outcome.notes[:_MOST_NOTES], more])
    return outcome


def is_still_current(
    result: Mapping[str, Any],
    table: TableInfo,
    run_id: str,
    options: Mapping[str, Any],
    *,
    aws_conn_id: str | None,
    region_name: str | None,
) -> bool:
    """Whether the Delta table is what a verification has compared: nobody has written to it, or converted it, since.

    The log is listed, and its first entry read, by this task.

    :param result: the :class:`VerifyResult`, as a dict.
    :param run_id: the run that has converted the table.
    :param options: :class:`ConversionOptions` as a dict.
    :raises Exception: the log cannot be read from here.
    """
    from airflow_hive_to_delta.core.delta.log.commits import log_state
    from airflow_hive_to_delta.core.storage.log_storage import storage_for
    from airflow_hive_to_delta.core.storage.uri import parse_location

    root = parse_location(table.location)
    if str(root) != result["location"]:
        return False
    with aws_clients(aws_conn_id, region_name):
        state = log_state(storage_for(root, None, ConversionOptions.from_dict(dict(options))), root)
    return state.version == result["version"] and state.run_id == run_id
