"""Many rows of an Arrow table in one value, in Arrow's stream format.

Spark handles the rows of a DataFrame one by one in the JVM. Packed, a list of files is a few rows there, and its cost
no longer depends on how long the list is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def pack_rows(table: pa.Table, most: int) -> list[bytes]:
    """Pack the rows of a table.

    :param most: rows in a value.
    """
    # A slice of a batch is written without the rest of its buffers.
    return [_pack(batch) for batch in table.combine_chunks().to_batches(most)]


def pack_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack each batch into one value. It is a function for ``mapInArrow``."""
    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([_pack(batch)], pa.binary())], ["block"])


def unpack_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that were packed into the first column of batches. It is a function for ``mapInArrow``."""
    import pyarrow as pa

    for batch in batches:
        for packed in batch.column(0):
            with pa.ipc.open_stream(packed.as_buffer()) as reader:
                yield from reader


def _pack(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
