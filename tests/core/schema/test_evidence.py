"""What files say of a table's columns, merged in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_hive_to_delta.core.errors import SchemaError
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.merge import build_table_schema
from tests.support.schemas import array, files, mapping, struct, structs_of, types_of

FILE_TYPES = st.recursive(
    st.sampled_from(["integer", "long", "decimal(5,2)", "decimal(4,3)", "string"]),
    lambda inner: st.one_of(
        inner.map(array), st.builds(mapping, inner, inner), structs_of(inner, st.sampled_from("abAB"))
    ),
    max_leaves=5,
)
FILES = st.builds(
    Evidence.of_file,
    structs_of(FILE_TYPES, st.sampled_from(["a", "A", "b", "c", "C", "d e"])),
    st.sampled_from(["p1", "p2", "p3", "p4"]),
)


@given(FILES, FILES, FILES)
def test_evidence_merges_in_any_order_any_grouping_and_any_number_of_times(one, two, three):
    assert one.merge(two) == two.merge(one)
    assert one.merge(two).merge(three) == one.merge(two.merge(three))
    assert one.merge(one) == one
    assert one.merge(two).merge(two) == one.merge(two)
    assert Evidence().merge(one) == one == one.merge(Evidence())


@given(FILES, FILES)
def test_evidence_travels_as_json(one, two):
    merged = one.merge(two)
    assert Evidence.from_json(merged.to_json()) == merged
    assert Evidence.from_json(Evidence().to_json()) == Evidence()


@settings(max_examples=200)
@given(st.lists(FILES, min_size=1, max_size=4), st.randoms())
def test_the_schema_does_not_depend_on_the_order_of_merging(evidence, random):
    def outcome(order):
        merged = Evidence()
        for one in order:
            merged = merged.merge(one)
        try:
            return build_table_schema(merged, None, {"d E": "integer"}, allow_name_case_conflict=True)
        except SchemaError as error:
            return str(error)

    shuffled = random.sample(evidence, len(evidence))
    assert outcome(evidence) == outcome(shuffled)


def test_evidence_does_not_grow_with_the_number_of_files():
    evidence = Evidence()
    for number in range(1000):
        evidence = evidence.merge(Evidence.of_file(struct(a="integer", b=struct(c="string")), f"{number:04}.parquet"))
    assert evidence == Evidence.of_file(struct(a="integer", b=struct(c="string")), "0000.parquet")


@pytest.mark.parametrize("schema", [struct(A="integer", a="long"), struct(s=array(struct(A="integer", a="integer")))])
def test_rule_12_two_spellings_in_one_file_are_refused(schema):
    with pytest.raises(SchemaError, match=r"twice\.parquet.*A and .*a,"):
        Evidence.of_file(schema, "twice.parquet")


def test_the_order_of_columns_is_that_of_the_smallest_path_and_later_columns_follow():
    evidence = files(struct(x="string", y="string"), struct(z="string", x="string", y="string"))
    assert list(types_of(build_table_schema(evidence, None, {}).schema)) == ["x", "y", "z"]
