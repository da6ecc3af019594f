"""What a comparison right after a conversion makes of the result of that, without any table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_hive_to_delta import ConversionResult, TableInfo, TransientError, VerificationError, VerifyResult
from airflow_hive_to_delta.core.lifecycle.verify import verify_conversion

TABLE = TableInfo("sales.orders", "s3://lake/orders")
Compare = Callable[[TableInfo, int], VerifyResult]


def converted(verified: dict[str, int]) -> ConversionResult:
    return ConversionResult("sales.orders", "", True, "converted", verified=verified, notes=["widened"])


def differs(table: TableInfo, version: int) -> VerifyResult:
    result = VerifyResult(table.qualified_name, table.location, "counts", success=True, version=version)
    raise VerificationError("sales.orders: version 0 is not its original", result)


def throttled(table: TableInfo, version: int) -> VerifyResult:
    raise TransientError("S3 throttles")


@pytest.mark.parametrize("compare", [differs, throttled])
@pytest.mark.parametrize(
    ("verified", "proven"), [({"counts": 0}, "by counts at version 0"), ({"full": 3}, "by full at version 3")]
)
def test_a_table_that_was_verified_before_stays_so_and_notes_the_error_of_a_later_comparison(
    compare: Compare, verified: dict[str, int], proven: str
) -> None:
    result = verify_conversion(TABLE, converted(verified), "counts", compare)
    assert (result.success, result.error, result.verified, result.verification) == (True, None, verified, None)
    text = "S3 throttles" if compare is throttled else "sales.orders: version 0 is not its original"
    assert result.notes == [
        "widened",
        f"It was verified before, {proven}. Comparing it again has failed: {text}",
    ]


@pytest.mark.parametrize(("compare", "retryable"), [(differs, False), (throttled, True)])
def test_a_table_that_was_verified_by_a_weaker_level_or_never_fails(compare: Compare, retryable: bool) -> None:
    for verified in ({}, {"counts": 0}):
        result = verify_conversion(TABLE, converted(verified), "full", compare)
        assert (result.success, result.status, result.retryable) == (False, "converted", retryable)
        assert result.error is not None
        assert result.notes == ["widened"]
