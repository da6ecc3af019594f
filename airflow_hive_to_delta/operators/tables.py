"""What the operators of a migration share: tables and batches of them, their outcomes, and when to try again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_hive_to_delta.core.models import ConversionOptions, TableInfo
from airflow_hive_to_delta.report import TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The XCom that a task leaves about tables which have no result.
OUTCOMES = "outcomes"

Table = dict[str, Any]
#: One table as discovery gives it, or a batch of them.
TableOrBatch = Table | Sequence[Table]
Options = ConversionOptions | Mapping[str, Any] | None


def options_dict(options: Options) -> dict[str, Any]:
    """Conversion options as a dict that Airflow can template; wrong ones fail here, when the DAG is parsed."""
    if options is None or isinstance(options, ConversionOptions):
        return (options or ConversionOptions()).to_dict()
    if not isinstance(options, Mapping):
        raise TypeError(f"options is {options!r}, expected ConversionOptions or a dict of them")
    try:
        return ConversionOptions.from_dict(dict(options)).to_dict()
    except ValueError as error:
        raise ValueError(f"options: {error}") from error


def batch_of(given: Any, argument: str) -> list[dict[str, Any]]:
    """One dict, or several, as a list."""
    batch = [given] if isinstance(given, Mapping) else list(given) if isinstance(given, Sequence) else None
    if not batch or isinstance(given, str) or not all(isinstance(item, Mapping) for item in batch):
        raise AirflowFailException(
            f"{argument} is {given!r:.200}, expected what the task before it returns: one dict, or a batch of them"
        )
    return [dict(item) for item in batch]


def label_of(given: Any) -> str:
    """How a table, or a batch of them, is called in Airflow's pages."""
    try:
        names = [qualified_name(table) for table in batch_of(given, "table")]
    except (AirflowFailException, ValueError, TypeError):
        return ""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def qualified_name(table: Mapping[str, Any]) -> str:
    return TableInfo.from_dict(dict(table)).qualified_name


def fail(context: Context, outcomes: Sequence[TableOutcome]) -> NoReturn:
    """Leave the outcomes for the report and fail the task: for good, unless trying again may help one of them."""
    tell(context, outcomes)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    message = "\n".join(f"{outcome.table}: {outcome.error}" for outcome in failed)
    if any(outcome.retryable for outcome in failed):
        raise AirflowException(message)
    raise AirflowFailException(message)


def tell(context: Context, outcomes: Sequence[TableOutcome]) -> None:
    """Leave outcomes for the report."""
    context["ti"].xcom_push(OUTCOMES, [outcome.to_dict() for outcome in outcomes])


def has_tries_left(context: Context) -> bool:
    instance: Any = context["ti"]
    return bool(instance.try_number <= instance.max_tries)


def as_failed(outcome: TableOutcome) -> TableOutcome:
    """A table that was handed to a conversion and refused there has failed: its task is red."""
    return replace(outcome, status="failed", advice="") if outcome.status == "refused" else outcome
