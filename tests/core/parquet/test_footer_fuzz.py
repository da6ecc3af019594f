"""No footer ends the process that reads it, whatever is in it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from tests.support.footer_patches import MIN, STATISTICS, Fields, chunks_of, in_statistics, rewrite_footer
from tests.support.project import PROJECT
from tests.support.tables import write_parquet

#: How many mutants, each time others: `make soak` sets it.
MUTANTS = int(os.environ.get("FOOTER_MUTANTS", "1500"))
SEED = 1 if MUTANTS <= 1500 else int.from_bytes(os.urandom(4))

#: Reads files as a worker does, and imports no more than that needs.
READ = """
import json, os, sys
import pyarrow as pa
from airflow_hive_to_delta.core.parquet.footers import FooterReader
from airflow_hive_to_delta.core.options import ConversionOptions
listed = [{"path": path, "size": os.path.getsize(path)} for path in sys.argv[1:]]
kinds = {"path": "string", "size": "int64", "modification_time": "int64"}
schema = pa.schema([*kinds.items(), ("partition_values", pa.map_(pa.string(), pa.string()))])
reader = FooterReader(os.path.dirname(sys.argv[1]), {}, ConversionOptions())
rows = [row for batch in reader([pa.RecordBatch.from_pylist(listed, schema)]) for row in batch.to_pylist()]
print(json.dumps([[row["error"], row["leaf_statistics"], row["retryable"]] for row in rows]))
"""


def run(*arguments: str) -> Any:
    done = subprocess.run([sys.executable, *arguments], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5_000:]
    return json.loads(done.stdout)


class OneKey(pe.KmsClient):  # type: ignore[misc]  # pyarrow has no types
    """A key management service for tests, which wraps a key by writing it in another alphabet."""

    def __init__(self, _config: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


def write_encrypted_column(path: Path) -> Path:
    """A column is encrypted and the footer is not, so that readers without the keys can use the other columns."""
    table = pa.table({"open": [1, 2], "secret": ["a", "b"]})
    keys = pe.EncryptionConfiguration("footer", column_keys={"column": ["secret"]}, plaintext_footer=True)
    properties = pe.CryptoFactory(OneKey).file_encryption_properties(pe.KmsConnectionConfig(), keys)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    assert path.read_bytes().endswith(b"PAR1")
    return path


def only_the_column_says_so(footer: Fields) -> None:
    """Without the fields of the file that say how it is encrypted."""
    footer.pop(8, None)
    footer.pop(9, None)


def a_number_for_a_bound(footer: Fields) -> None:
    next(chunks_of(footer))[STATISTICS][1][MIN] = (6, 1)


def test_an_odd_footer_is_an_error_of_its_file_or_has_no_bounds(tmp_path):
    encrypted = write_encrypted_column(tmp_path / "encrypted")
    hidden = rewrite_footer(write_encrypted_column(tmp_path / "hidden"), only_the_column_says_so)
    bounds = [
        rewrite_footer(write_parquet(tmp_path / f"bound{length}", {"n": [1, 2]}), in_statistics(0, MIN=b"x" * length))
        for length in (0, 3, 7, 9, 300)
    ]
    bounds.append(rewrite_footer(write_parquet(tmp_path / "number", {"n": [1, 2]}), a_number_for_a_bound))
    found = run("-c", READ, *map(str, [encrypted, hidden, *bounds]))
    for path, (error, _, retryable) in zip((encrypted, hidden), found, strict=False):
        assert f"The file {path} has encrypted columns" in error
        assert retryable is False
    assert [(error, json.loads(statistics)) for error, statistics, _ in found[2:]] == [(None, [[None, None, 0]])] * 6


def test_no_mutant_ends_the_reader_or_gives_a_wrong_bound():
    outcomes = run("-m", "tests.support.footer_fuzz", str(SEED), str(MUTANTS))
    assert outcomes["read"] > MUTANTS // 10, "mutations that are always refused prove little"
    assert outcomes["refused"] > MUTANTS // 10
