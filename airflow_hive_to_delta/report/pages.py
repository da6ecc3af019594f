"""The templates that every page is made of: the reports of runs and of campaigns, and the page in Airflow.

They lie in ``templates``, with the styles that all of them share. A report is one file with its style and its script
inside, which asks no other host or file for anything. Templates are given texts and numbers, never markup.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment

#: The columns of numbers in a list of tables, in their order.
NUMBER_COLUMNS = ("files", "size", "rows", "time")
_TEXT_BUDGET = 1_000_000


class Verdict(NamedTuple):
    """A sentence under the title that says how things are."""

    text: str
    #: ``good``, ``warning``, ``bad``, or empty.
    tone: str


class Card(NamedTuple):
    """A number among the totals."""

    name: str
    value: str
    detail: str
    #: ``ok``, ``warning``, ``bad``, or empty.
    tone: str = ""
    #: The time that the value names, in seconds since the epoch, for a page that knows the time zone of its reader.
    at: int | None = None


class Share(NamedTuple):
    """The tables of one status or state: how many, and their segment of the bar, in thousandths of its width."""

    #: The class of the style, by which it has its colour.
    tone: str
    label: str
    start: str
    width: str
    table_count: str


class NumberCell(NamedTuple):
    """A cell with a number."""

    text: str
    #: What the column is sorted by; None: the number that the text is.
    sort_value: float | None = None
    title: str = ""


class TableLine(NamedTuple):
    """A row of a list of tables."""

    tone: str
    label: str
    table: str
    #: Of :data:`NUMBER_COLUMNS`; None: the cell is empty.
    numbers: dict[str, NumberCell | None]
    location: str = ""
    owner: str = ""
    target: str = ""
    target_details: str = ""
    error: str = ""
    advice: str = ""
    notes: Sequence[str] = ()
    is_empty: bool = False


class Listing(NamedTuple):
    """A list of tables. Columns whose every cell is empty are left out."""

    rows: list[TableLine]
    has_owners: bool
    has_targets: bool
    number_columns: list[str]

    @classmethod
    def of(cls, rows: list[TableLine]) -> Listing:
        return cls(
            rows,
            has_owners=any(row.owner for row in rows),
            has_targets=any(row.target or row.target_details for row in rows),
            number_columns=[column for column in NUMBER_COLUMNS if any(row.numbers[column] for row in rows)],
        )


def make_shares(counts: Iterable[tuple[str, str, int]]) -> list[Share]:
    """The bar of statuses or states.

    :param counts: the tone, the label and the number of tables of each, in the order of the bar. What has no table is
        left out.
    """
    found = [each for each in counts if each[2]]
    total = sum(count for _, _, count in found)
    shares, start = [], 0.0
    for tone, label, count in found:
        width = 1000 * count / total
        shares.append(Share(tone, label, f"{start:.2f}", f"{width:.2f}", f"{count:,}"))
        start += width
    return shares


def text_limit(tables: int) -> int:
    """The most characters of one text in a report of so many tables.

    With thousands of long errors it is still a page that a browser opens at once.
    """
    return min(1_000, max(120, _TEXT_BUDGET // max(tables, 1)))


def render_report(template: str, **values: Any) -> str:
    """A report as one HTML page with its style and its script inside."""
    style, script = _inline()
    return _render(template, style=style, script=script, **values)


@cache
def render_campaign_page() -> str:
    """The page in Airflow, which names its styles and its scripts and has no data."""
    empty: dict[str, Any] = {"cards": [], "shares": [], "waves": [], "burn_down": None}
    texts = {"title": "Hive to Delta campaigns", "wave_note": "The newest first."}
    return _render("campaign_page.html.j2", live=True, **empty, **texts)


def _render(template: str, **values: Any) -> str:
    page = _environment().get_template(template).render(**values)
    # A name that is not Unicode would keep the whole page from being written.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


@cache
def _environment() -> Environment:
    # Jinja2 is imported when a page is rendered: modules of operators, which a DAG processor imports, import this one.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("airflow_hive_to_delta.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["csp_hash"] = _csp_hash
    return environment


@cache
def _inline() -> tuple[str, str]:
    """The style and the script of a report."""
    from markupsafe import Markup

    folder = files("airflow_hive_to_delta.report") / "templates"
    look, dark, own = ((folder / f"{name}.css").read_text(encoding="utf-8") for name in ("look", "dark", "report"))
    # Paper is light.
    style = f"{look}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n{own}"
    script = (folder / "report.js").read_text(encoding="utf-8")
    # Both are files of this package, and not escaped: their hashes are of what a browser finds in the page.
    return Markup(style), Markup(script)  # noqa: S704


def _csp_hash(source: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an inline style or script."""
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"
