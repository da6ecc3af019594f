"""What a caller can choose for a sync."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_hive_to_delta import SyncOptions


def test_the_options_of_a_sync_travel_as_json() -> None:
    options = SyncOptions("complete", merge_schema=True, quiet_period=timedelta(minutes=10))
    assert options.to_dict() == {
        "output_mode": "complete",
        "merge_schema": True,
        "overwrite_schema": False,
        "accept_conflicts": False,
        "allow_forgotten_entries": False,
        "quiet_period": 600.0,
    }
    assert SyncOptions.from_dict(options.to_dict()) == options
    assert SyncOptions.from_dict(SyncOptions().to_dict()) == SyncOptions()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"output_mode": "update"}, "output_mode is 'update', expected one of append, complete"),
        ({"merge_schema": "no"}, "merge_schema is 'no', expected True or False"),
        ({"overwrite_schema": True}, "overwrite_schema=True goes with output_mode='complete' only"),
        ({"quiet_period": timedelta(seconds=-1)}, "expected a time of at least 0"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SyncOptions(**given)
