"""What travels between the steps is JSON of a known shape (rule 53)."""

from __future__ import annotations

import json

import pytest

from airflow_hive_to_delta import ConversionOptions, ConversionResult, ParquetFileInfo, TableInfo, VacuumResult

DOCUMENTS = [
    TableInfo(name="t", location="s3://b/t", partition_keys=["p"], partition_types={"p": "int"}, database="d"),
    ParquetFileInfo(path="s3://b/t/p=1/f", size=7, partition_values={"p": None}),
    ConversionOptions(stats="none", properties={"a": "b"}, allowed_roots=["s3://b"]),
    ConversionResult(source_table="d.t", target_table="c.s.t", success=True, status="converted", notes=["n"]),
    VacuumResult(table_name="t", orphaned_files=["s3://b/x"]),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_rule_53_every_document_comes_back_from_json(document):
    assert type(document).from_dict(json.loads(json.dumps(document.to_dict()))) == document


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_rule_53_a_key_that_is_not_known_is_an_error_and_never_silently_nothing(document):
    with pytest.raises(ValueError, match="has no misspelt; it has"):
        type(document).from_dict({**document.to_dict(), "misspelt": 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stats": "all"}, "stats is 'all', expected one of footer, scan, none"),
        ({"register_in": "hive"}, "register_in is 'hive', expected one of sql, glue"),
        ({"stats_batch_size": 0}, "stats_batch_size is 0, expected at least 1"),
        ({"footer_threads": -1}, "footer_threads is -1, expected at least 1"),
    ],
)
def test_options_are_checked_when_they_are_made(wrong, message):
    with pytest.raises(ValueError, match=message):
        ConversionOptions(**wrong)


def test_a_table_is_named_with_all_that_is_known_of_it():
    assert TableInfo(name="t", location="").qualified_name == "t"
    assert TableInfo(name="t", location="", catalog="c", database="d").qualified_name == "c.d.t"


def test_rule_45_a_bucketed_table_is_refused_unless_losing_the_buckets_is_fine():
    table = TableInfo(name="t", location="s3://b/t", bucket_columns=["id"])
    assert "allow_bucketed=True" in (table.why_refused(ConversionOptions()) or "")
    assert table.why_refused(ConversionOptions(allow_bucketed=True)) is None
