"""Footers and add actions in one pass, for files whose table's columns are known before all of them were read.

Statistics are written for the columns that the table's schema has, and that is known only when all files were
described. A few footers, however, nearly always give the same columns as all of them. So the driver reads these few,
the executors write the add actions of the other files while they read the footers, and in the end it is checked that
all files together give no other columns. Where they do, the add actions are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_hive_to_delta.core.parquet.add_actions import BLOCKS_SCHEMA, write_block
from airflow_hive_to_delta.core.parquet.footers import FooterReader
from airflow_hive_to_delta.core.parquet.statistics import StatisticsWriter, TableLeaf
from airflow_hive_to_delta.core.parquet.totals import merge_evidence, total_rows_by_layout
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.spark.packed_rows import unpack_rows

#: Add actions, and the totals of their files: a JSON list of rows of TOTALS_SCHEMA.
ONE_PASS_SCHEMA = f"{BLOCKS_SCHEMA}, totals string"
_ONE_PASS_ARROW_SCHEMA = arrow_schema(ONE_PASS_SCHEMA)
_SAMPLE_FILES = 16


@dataclass(frozen=True)
class WrittenAdds:
    """Add actions that were written while the files were described."""

    #: The columns that they have statistics of.
    leaves: Sequence[TableLeaf]
    #: Reads them, as rows of BLOCKS_SCHEMA.
    read_blocks: Callable[[], Iterator[Mapping[str, Any]]] = field(repr=False)


@dataclass
class OnePassWriter:
    """The function for ``mapInArrow`` that turns packed files into add actions and totals (ONE_PASS_SCHEMA).

    Its input has files in FILES_ARROW_SCHEMA, packed by :func:`~.packed_rows.pack_rows`.
    """

    reader: FooterReader
    #: The columns that get statistics.
    leaves: Sequence[TableLeaf]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = StatisticsWriter(self.leaves)
        evidence: Evidence | None = None
        for files in self.reader.read(unpack_rows(batches)):
            totals = total_rows_by_layout(files)
            evidence = merge_evidence(totals, evidence)
            layouts = {total["layout"]: total.pop("file_schema") for total in totals}
            # The driver raises the first error among the totals, and does not look at the add actions then.
            good = [file for file in files if file.get("error") is None]
            yield _batch({**write_block(good, writer, layouts), "totals": json.dumps(totals)})
        if evidence is not None:
            last = {"files": 0, "bytes": 0, "absolute": 0, "errors": 0, "evidence": evidence.to_json()}
            yield _batch({"totals": json.dumps([last])})


def split_sample(files: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A few files from all over a list, and the others."""
    count = files.num_rows
    chosen = sorted({*range(0, count, -(-count // _SAMPLE_FILES)), count - 1}) if count else []
    is_other = [True] * count
    for position in chosen:
        is_other[position] = False
    return files.take(pa.array(chosen, pa.int64())), files.filter(pa.array(is_other, pa.bool_()))


def _batch(row: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=_ONE_PASS_ARROW_SCHEMA)
