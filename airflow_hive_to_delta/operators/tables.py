"""What the operators of a migration share: tables and batches of them, their outcomes, and when to try again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_hive_to_delta.core.errors import describe_error
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.engines import JobError
from airflow_hive_to_delta.report.outcomes import TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

#: What Airflow's database holds of a label.
_LONGEST_LABEL = 250
#: The XCom that a task leaves about its tables, however it ends.
OUTCOMES = "outcomes"
#: What stands beside each outcome there: which of the mapped tasks left it.
MAP_INDEX = "map_index"
#: And the list of the table's files, where it is another one than the step before has left.
FILES = "files"
#: And that its task did not fail with it, so that the next step has a later word on the table.
GOES_ON = "goes_on"

Table = dict[str, Any]
#: One table as discovery gives it, or a batch of them.
TableOrBatch = Table | Sequence[Table]
Options = ConversionOptions | Mapping[str, Any] | None


def options_dict(options: Options) -> dict[str, Any]:
    """Conversion options as a dict that Airflow can template; wrong ones fail here, when the DAG is parsed."""
    if options is None or isinstance(options, ConversionOptions):
        options = (options or ConversionOptions()).to_dict()
    if not isinstance(options, Mapping):
        raise TypeError(f"options is {options!r}, expected ConversionOptions or a dict of them")
    # A template is checked when it is rendered.
    templates = {name: value for name, value in options.items() if isinstance(value, str) and "{{" in value}
    known = {name: value for name, value in options.items() if name not in templates}
    unknown = templates.keys() - ConversionOptions().to_dict().keys()
    try:
        checked = ConversionOptions.from_dict({**known, **{name: templates[name] for name in unknown}})
        if "partition_timezone" not in templates:
            ZoneInfo(checked.partition_timezone)
    except (ValueError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"options: {error}") from error
    return {**checked.to_dict(), **templates}


def check_count(argument: str, given: Any, *, least: int, optional: bool = False) -> None:
    """Refuse, when a DAG is parsed, what is no whole number of at least ``least``."""
    if given is None and optional:
        return
    if type(given) is not int or given < least:
        raise ValueError(f"{argument} is {given!r}, expected a whole number, at least {least}")


def check_names(argument: str, given: Any, *, empty: bool = False) -> None:
    """Refuse, when a DAG is parsed, what is neither a name nor a list of names. An XCom is known only when it runs."""
    if hasattr(given, "resolve"):
        return
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"{argument} is {given!r}, expected a name or pattern, or a list of them")
    if not names and not empty:
        raise ValueError(f"{argument} is empty, expected a name or pattern, or a list of them")


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
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    name = names[0]
    room = _LONGEST_LABEL - len(more)
    return (name if len(name) <= room else f"{name[: room - 1]}…") + more


def qualified_name(table: Mapping[str, Any]) -> str:
    return TableInfo.from_dict(dict(table)).qualified_name


def fail(
    context: Context, outcomes: Sequence[TableOutcome], files: Mapping[str, dict[str, Any]] | None = None
) -> NoReturn:
    """Leave the outcomes for the report and fail the task: for good, unless trying again may help one of them."""
    tell(context, outcomes, files)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    message = "\n".join(f"{outcome.table}: {outcome.error}" for outcome in failed)
    raise _Told(message) if any(outcome.retryable for outcome in failed) else _ToldForGood(message)


def failure(error: Exception) -> AirflowException:
    """An error of the core or of a job in Airflow's terms: tried again, or not."""
    retryable = error.retryable if isinstance(error, JobError) else describe_error(error).retryable
    return AirflowException(str(error)) if retryable else AirflowFailException(str(error))


@contextmanager
def telling(context: Context, tables: Sequence[str]) -> Iterator[None]:
    """Whatever ends the block early, a timeout too, is left for the report as the outcome of every table."""
    try:
        yield
    except (_Told, _ToldForGood, AirflowSkipException):
        raise
    except BaseException as error:
        retryable = not isinstance(error, AirflowFailException)
        text = describe_error(error).text
        tell(context, [TableOutcome.of_error(table, text, retryable) for table in tables])
        raise


class _Told(AirflowException):
    """A failure whose outcomes are left for the report."""


class _ToldForGood(AirflowFailException):
    """The same, and no retry can help."""


def tell(
    context: Context,
    outcomes: Sequence[TableOutcome],
    files: Mapping[str, dict[str, Any]] | None = None,
    *,
    goes_on: bool = False,
) -> None:
    """Leave outcomes for the report and for the step after, with the index of the mapped task that they are from.

    :param files: lists of files, by table, that take the place of those which were made before.
    :param goes_on: the task does not fail with those of them that have failed: the next step takes them up.
    """
    instance: Any = context["ti"]
    index = -1 if instance.map_index is None else instance.map_index
    lists = {table: {FILES: found} for table, found in (files or {}).items()}
    beside = {MAP_INDEX: index, **({GOES_ON: True} if goes_on else {})}
    instance.xcom_push(
        OUTCOMES, [{**outcome.to_dict(), **beside, **lists.get(outcome.table, {})} for outcome in outcomes]
    )


def has_tries_left(context: Context) -> bool:
    instance: Any = context["ti"]
    return bool(instance.try_number <= instance.max_tries)


def as_failed(outcome: TableOutcome) -> TableOutcome:
    """A table that was handed to a conversion and refused there has failed: its task is red."""
    return replace(outcome, status="failed", advice="") if outcome.status == "refused" else outcome
