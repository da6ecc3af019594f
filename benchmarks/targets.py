"""What the results should be, and which of it they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Lines = Sequence[Mapping[str, Any]]
#: Filters on columns that have no bounds in our logs: whoever wrote these files leaves NaN out of the bounds of floats.
WITHOUT_BOUNDS = frozenset({"double"})


@dataclass(frozen=True)
class Target:
    """An upper bound of a number that is computed from the results.

    :param value: computes it from the numbers of cases, or raises a LookupError when a case has not been measured.
    :param if_missed: what is known of the reason, for the report of results that miss it.
    """

    text: str
    value: Callable[[_Numbers], float]
    most: float
    unit: str = ""
    if_missed: str = ""


class _Numbers:
    def __init__(self, lines: Lines) -> None:
        self._lines = {(line["case"], line["contender"]): line for line in lines if line["scale"] == 1}

    def seconds(self, case: str, contender: str, mode: str = "warm") -> float:
        return float(self._find(case, contender, mode, "seconds"))

    def per_file(self, case: str, contender: str, mode: str = "warm") -> float:
        return float(self._find(case, contender, mode, "seconds_per_file"))

    def per_table(self, case: str, contender: str) -> float:
        return float(self._find(case, contender, "warm", "seconds_per_table"))

    def more_files_read(self, case: str, contender: str, than: str) -> float:
        """How many files one contender's table reads for the filters beyond those that another's reads."""
        own = self._find(case, contender, "warm", "facts")["files_read"]
        others = self._find(case, than, "warm", "facts")["files_read"]
        return float(sum(max(0, own[name] - others[name]) for name in own.keys() - WITHOUT_BOUNDS))

    def _find(self, case: str, contender: str, mode: str, key: str) -> Any:
        found = self._lines[case, contender][mode][key]
        if found is None:
            raise KeyError(key)
        return found


def _ratio(case: str, contender: str, *others: str, mode: str = "warm") -> Callable[[_Numbers], float]:
    def value(numbers: _Numbers) -> float:
        return numbers.seconds(case, contender, mode) / sum(numbers.seconds(case, other, mode) for other in others)

    return value


TARGETS = (
    Target(
        "10,000 files: at least 20 times as fast as CONVERT TO DELTA with statistics",
        _ratio("local-10k", "ours", "convert"),
        1 / 20,
        if_missed="`footers` reads every footer with pyarrow and writes nothing. Where it alone is less than 20 times "
        "as fast as CONVERT TO DELTA, the machine scans small files too fast for this target: most of our time is the "
        "reading of footers, and listing, statistics and the log are what is above it.",
    ),
    Target("10,000 files: at most 1.2 times delta-rs", _ratio("local-10k", "ours", "delta-rs"), 1.2),
    Target("100,000 files: faster than delta-rs", _ratio("local-100k", "ours", "delta-rs"), 1.0),
    Target("100,000 files: at most 1.3 times footers alone", _ratio("local-100k", "ours", "footers"), 1.3),
    Target(
        "100,000 files: time per file at most 1.1 times that at 10,000",
        lambda numbers: numbers.per_file("local-100k", "ours") / numbers.per_file("local-10k", "ours"),
        1.1,
    ),
    Target(
        "S3: faster than delta-rs",
        _ratio("s3-10k", "ours", "delta-rs"),
        1.0,
        if_missed="Both make one request for each file. Ours are signed, sent and parsed in Python, those of delta-rs "
        "and of `footers` natively; the server takes its share of the same cores.",
    ),
    Target(
        "1,000,000 files: at most 250 µs per file",
        lambda numbers: numbers.per_file("million", "ours", "cold") * 1e6,
        250,
        " µs",
    ),
    Target(
        "1,000,000 files: the first query at most that of delta-rs's table",
        _ratio("million", "query-ours", "query-delta-rs", mode="cold"),
        1.0,
    ),
    Target(
        "1,000 tables of 20 files: at most 0.25 s per table",
        lambda numbers: numbers.per_table("many-tables", "ours"),
        0.25,
        " s",
    ),
    Target(
        "20 files: an unchanged sync at most 0.8 of the conversion", _ratio("small-20", "sync-unchanged", "ours"), 0.8
    ),
    Target(
        "20 files: verify by counts at most 0.7 of the conversion", _ratio("small-20", "verify-counts", "ours"), 0.7
    ),
    Target(
        "100 new files into 100,000: at most 5 times their conversion and one listing",
        _ratio("sync-100", "sync-new", "ours", "listing"),
        5.0,
    ),
    Target(
        "100,000 files: for no filter more files read than after CONVERT TO DELTA",
        lambda numbers: numbers.more_files_read("query-100k", "query-ours", "query-convert"),
        0,
        " more",
    ),
)


def format_targets(lines: Lines) -> str:
    """A Markdown table of the targets whose cases have been measured; empty if there is none."""
    numbers = _Numbers(lines)
    rows, missed = [], []
    for target in TARGETS:
        try:
            value = target.value(numbers)
        except LookupError:
            continue
        holds = "yes" if value <= target.most else "**no**"
        if value > target.most and target.if_missed:
            missed.append(f"- {target.text}: {target.if_missed}")
        rows.append(f"| {target.text} | {target.most:.3g}{target.unit} | {value:.3g}{target.unit} | {holds} |")
    if not rows:
        return ""
    table = "\n".join(["| target, warm | at most | measured | holds |", "| --- | --: | --: | --- |", *rows])
    return "\n\n".join([table, *(["\n".join(missed)] if missed else [])])
