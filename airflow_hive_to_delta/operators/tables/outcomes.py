"""The outcomes that a task records about its tables, however it ends, and when a task is tried again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred

from airflow_hive_to_delta.core.errors import describe_error, name_error
from airflow_hive_to_delta.engines import JobError
from airflow_hive_to_delta.report.outcomes import TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The XCom with the outcomes of a task's tables.
OUTCOMES = "outcomes"
#: The key, in each outcome there, of the index of the mapped task that recorded it.
MAP_INDEX = "map_index"
#: The key of the list of the table's files, where it is another one than the step before has recorded.
FILES = "files"
#: The key of the result of the verification that found the table equal to its original, right after the conversion.
VERIFICATION = "verification"
#: The key that says that the task did not fail with a failed table, so that the outcome of the next step counts.
GOES_ON = "goes_on"


class ReportedError(AirflowException):
    """A failure whose outcomes are recorded. Airflow tries the task again."""


class ReportedFailure(AirflowFailException):
    """A failure whose outcomes are recorded, and which no retry can help."""


@contextmanager
def recording_outcomes(context: Context, tables: Sequence[str]) -> Iterator[None]:
    """Record any exception that ends the block, a timeout too, as the outcome of every table.

    Failures whose outcomes are recorded already, skips and deferrals pass through as they are.
    """
    try:
        yield
    except (ReportedError, ReportedFailure, AirflowSkipException, TaskDeferred):
        raise
    except BaseException as error:
        retryable = not isinstance(error, AirflowFailException)
        text = describe_error(error).text
        record_outcomes(context, [TableOutcome.of_error(table, text, retryable) for table in tables])
        raise


def record_outcomes(
    context: Context,
    outcomes: Sequence[TableOutcome],
    files: Mapping[str, dict[str, Any]] | None = None,
    *,
    verifications: Mapping[str, dict[str, Any]] | None = None,
    goes_on: bool = False,
) -> None:
    """Push outcomes for the report and for the next step, with the index of the mapped task that they are from.

    :param files: lists of files, by table, that take the place of those which were made before.
    :param verifications: the results, by table, of verifications that the task has run itself.
    :param goes_on: the task does not fail with those of them that have failed: the next step takes them up.
    """
    instance: Any = context["ti"]
    index = -1 if instance.map_index is None else instance.map_index
    beside = {MAP_INDEX: index, **({GOES_ON: True} if goes_on else {})}
    by_table = {FILES: files or {}, VERIFICATION: verifications or {}}

    def document(outcome: TableOutcome) -> dict[str, Any]:
        own = {key: found[outcome.table] for key, found in by_table.items() if outcome.table in found}
        return {**outcome.to_dict(), **beside, **own}

    instance.xcom_push(OUTCOMES, [document(outcome) for outcome in outcomes])


def fail_with_outcomes(
    context: Context,
    outcomes: Sequence[TableOutcome],
    files: Mapping[str, dict[str, Any]] | None = None,
    *,
    verifications: Mapping[str, dict[str, Any]] | None = None,
) -> NoReturn:
    """Record the outcomes and fail the task: without retries, unless trying again may help one of the tables."""
    record_outcomes(context, outcomes, files, verifications=verifications)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    message = "\n".join(f"{each.table}: {name_error(each.error or '', each.error_kind)}" for each in failed)
    raise ReportedError(message) if any(outcome.retryable for outcome in failed) else ReportedFailure(message)


def airflow_error(error: Exception) -> AirflowException:
    """The exception by which a task fails for an error of the core or of a job: with retries where these may help."""
    retryable = error.retryable if isinstance(error, JobError) else describe_error(error).retryable
    return AirflowException(str(error)) if retryable else AirflowFailException(str(error))


def has_tries_left(context: Context) -> bool:
    """Whether Airflow tries the task again if this try fails."""
    instance: Any = context["ti"]
    return bool(instance.try_number <= instance.max_tries)


def refused_as_failed(outcome: TableOutcome) -> TableOutcome:
    """The outcome of a task: a table that was handed to it and refused there has failed, and its task is red."""
    return replace(outcome, status="failed", advice="") if outcome.status == "refused" else outcome
