"""What an exception is described as in results."""

from __future__ import annotations

import pytest

from airflow_hive_to_delta.core.errors import (
    KINDS,
    AccessDeniedError,
    ErrorDescription,
    PermanentError,
    StaleFileListError,
    TransientError,
    describe_error,
    name_error,
)
from airflow_hive_to_delta.core.results import VerificationError, VerifyResult


@pytest.mark.parametrize(
    ("error", "described"),
    [
        (AccessDeniedError("Denied"), ErrorDescription("AccessDeniedError", "Denied", retryable=False)),
        (StaleFileListError("Too old"), ErrorDescription("StaleFileListError", "Too old", retryable=False)),
        (TransientError("Slow down"), ErrorDescription("TransientError", "Slow down", retryable=True)),
        (OSError("The disk is full"), ErrorDescription("OSError", "The disk is full", retryable=True)),
        (KeyboardInterrupt(), ErrorDescription("KeyboardInterrupt", "KeyboardInterrupt", retryable=True)),
    ],
)
def test_an_error_is_described_by_its_kind_its_text_and_whether_trying_again_may_help(error, described) -> None:
    assert describe_error(error) == described
    assert described.to_fields() == {
        "error": described.text,
        "retryable": described.retryable,
        "error_kind": described.kind,
    }


def test_other_errors_can_be_permanent_too() -> None:
    assert describe_error(ValueError("What?")).retryable
    assert not describe_error(ValueError("What?"), permanent=(ValueError,)).retryable
    assert not describe_error(PermanentError("No"), permanent=(ValueError,)).retryable


@pytest.mark.parametrize(
    ("text", "kind", "named"),
    [
        ("'day'", "KeyError", "KeyError: 'day'"),
        ("Denied", "AccessDeniedError", "Denied"),
        ("They differ", "VerificationError", "They differ"),
        ("MemoryError", "MemoryError", "MemoryError"),
        ("Throttled", None, "Throttled"),
    ],
)
def test_an_error_that_is_none_of_this_packages_is_named_with_its_class(text, kind, named) -> None:
    assert name_error(text, kind) == named


def test_an_error_of_an_executor_is_found_by_the_kind_that_describes_it() -> None:
    assert all(KINDS[describe_error(kind("text")).kind] is kind for kind in KINDS.values())


def test_a_verification_error_is_the_error_of_its_result() -> None:
    error = VerificationError("They differ", VerifyResult("d.t", "/t", "counts", success=True))
    result = error.result
    assert (result.success, result.error, result.retryable, result.error_kind) == (
        *(False, "They differ", False, "VerificationError"),
    )
