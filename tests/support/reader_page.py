"""``docs/readers.md``, made from what the readers answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Outcome(NamedTuple):
    """What a reader made of a table, and the words by which its error or its mistake is recognised."""

    kind: Literal["reads", "refuses", "wrong", "not tried"]
    words: str = ""


#: By table, then by reader.
Matrix = Mapping[str, Mapping[str, Outcome]]

_CELLS = {"reads": "yes", "refuses": "no", "wrong": "**wrong**", "not tried": "–"}

_HEAD = """\
# Who reads the converted tables

Made by `tests/core/lifecycle/test_readers.py` from what it saw: tables converted by this package, read by engines that
nobody here wrote. Every reader is asked for all rows, for their number, and for the rows of filters on partitions and
on values, by which it may skip files. *yes*: all of it is right. *no*: it refuses the table with an error, and nothing
wrong is read. **wrong**: it answers, but not rightly. –: not tried. `make test` compares this page with what it sees,
and `WRITE_READERS_PAGE=1 make test-trino` writes it anew. Only `make test-trino` asks Trino.

"""

_REMARKS = """\
## What to know

- **Files outside the table's location** have absolute paths in the log. They are written as `file:///…`, the spelling
  that Spark and Trino both read. `/path` is read by DuckDB and not by Trino, and Spark looks for it on its default file
  system, which on a cluster is another one. On S3 it makes no difference to these readers, Spark with `fs.s3.impl`
  set, whether it is `s3://` or `s3a://`; the log has the spelling of the table's location.
- **Columns without bounds.** The log has no bounds for booleans, for INT96 times, and for `float` and `double` unless
  parquet-mr wrote the file: statistics that are not known to be right are left out. PyArrow through deltalake
  (`to_pyarrow_table`, `to_pyarrow_dataset` and `to_pandas` with filters) takes a missing bound for one that nothing
  meets, and loses the rows. Read without filters, use `QueryBuilder`, or convert with
  `ConversionOptions(stats="none")`.
- **Type widening** is on where files are narrower than the table, so that readers without it say so; Trino leaves the
  widened columns out of the table instead. `ConversionOptions(type_widening=False)` leaves the feature off.
- **Trino** rounds `timestamp` values to milliseconds. It takes bounds of decimals for doubles, so bounds with more than
  15 digits are written rounded outwards.
- **The Delta kernel's** wrapper for Python reads whole tables, without filters, and finds no keys for a simulated S3.
"""


def render(matrix: Matrix, versions: Mapping[str, str]) -> str:
    readers = list(versions)
    lines = [
        "| table | " + " | ".join(readers) + " |",
        "|---|" + "---|" * len(readers),
        *(
            f"| {table} | " + " | ".join(_CELLS[outcomes[reader].kind] for reader in readers) + " |"
            for table, outcomes in matrix.items()
        ),
    ]
    tried = [f"- {reader}: {version}" for reader, version in versions.items()]
    failures = [
        f"- {reader}, {table}: {'' if outcomes[reader].kind == 'refuses' else 'wrong: '}`{outcomes[reader].words}`"
        for reader in readers
        for table, outcomes in matrix.items()
        if outcomes[reader].words
    ]
    return (
        _HEAD
        + "\n".join(lines)
        + "\n\n"
        + _REMARKS
        + "\n## Versions\n\n"
        + "\n".join(tried)
        + "\n\n## By what the others are recognised\n\n"
        + "\n".join(failures)
        + "\n"
    )
