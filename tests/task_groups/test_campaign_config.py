"""The config objects of campaigns: what makes no sense is refused when a DAG is parsed, by name and value."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta
from typing import Any

import pytest

from airflow_hive_to_delta import Approval, Closing, Lane, PerTable, PlanSettings, Retries, Units, UnitSize, Wave
from airflow_hive_to_delta.operators.campaigns.units import ConvertUnitOperator

AGO = timedelta(minutes=-1)
WRONG: list[tuple[type, dict[str, Any], str]] = [
    (Retries, {"attempts": 0}, "attempts is 0, expected a whole number, at least 1"),
    (Retries, {"attempts": True}, "attempts is True"),
    (Retries, {"in_unit": -1}, "in_unit is -1"),
    (Retries, {"backoff": AGO}, "backoff is -1 day, 23:59:00, expected a timedelta of at least 0:00:00"),
    (Retries, {"backoff": 30}, "backoff is 30, expected a timedelta"),
    (Retries, {"backoff": timedelta(days=2)}, "longest_backoff is 1 day, 0:00:00, expected a timedelta of at least 2"),
    (Retries, {"delay_in_unit": AGO}, "delay_in_unit is -1 day"),
    (Wave, {"tables": 0}, "tables is 0"),
    (Wave, {"bytes": 1.5}, "bytes is 1.5"),
    (Wave, {"until": "24:00"}, "until is '24:00', expected a time of day such as '06:00'"),
    (Wave, {"until": dt.time(6)}, "until is datetime.time"),
    (Wave, {"timezone": None}, "timezone is None, expected a name"),
    (Wave, {"timezone": ""}, "timezone is '', expected a name"),
    (UnitSize, {"files": -5}, "files is -5"),
    (Lane, {"max_active": 0}, "max_active is 0"),
    (Lane, {"max_workers": "4"}, "max_workers is '4'"),
    (Lane, {"execution_timeout": timedelta(0)}, "execution_timeout is 0:00:00, expected a timedelta of at least"),
    (Lane, {"pool": ""}, "pool is '', expected a name"),
    (Lane, {"deferrable": "yes"}, "deferrable is 'yes'"),
    (Lane, {"engine": "spark"}, "engine is 'spark'"),
    (Units, {"size": 50}, "size is 50, expected UnitSize"),
    (Units, {"alone": 2}, "alone is 2, expected Lane"),
    (Units, {"retries": 3}, "retries is 3, expected Retries"),
    (Closing, {"tolerance": -1}, "tolerance is -1"),
    (Closing, {"wave_ended": print}, "wave_ended is .*, expected a list of notifiers"),
    (Closing, {"needs_person": "mail"}, "needs_person is 'mail', expected a list of notifiers"),
    (Approval, {"notifiers": [1]}, "expected a list of notifiers"),
    (Approval, {"arguments": {"task_id": "ask"}}, "arguments has task_id, which the campaign gives the task itself"),
    (PlanSettings, {"choose": "sales"}, "choose is 'sales', expected a function"),
    (PlanSettings, {"owner_of": 1}, "owner_of is 1, expected a function"),
    (PerTable, {"retry_delay": AGO}, "retry_delay is -1 day"),
    (PerTable, {"max_workers": 0}, "max_workers is 0"),
]


@pytest.mark.parametrize(("config", "given", "message"), WRONG, ids=[f"{c.__name__}-{g}" for c, g, _ in WRONG])
def test_a_value_that_makes_no_sense_is_named(config: type, given: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        config(**given)


def test_backoff_doubles_up_to_the_longest_pause_whatever_the_numbers() -> None:
    now = dt.datetime(2026, 11, 18, tzinfo=dt.UTC)
    retries = Retries(backoff=timedelta(hours=1), longest_backoff=timedelta(hours=3))
    assert [(retries.next_attempt(number, now) - now) / timedelta(hours=1) for number in (1, 2, 3, 500)] == [1, 2, 3, 3]
    years = timedelta(days=1_000)
    assert Retries(backoff=years, longest_backoff=years).next_attempt(90, now) == now + years
    assert Retries(backoff=timedelta(0)).next_attempt(9, now) == now


@pytest.mark.parametrize(("name", "value"), [("lease", timedelta(0)), ("probation", AGO)])
def test_a_unit_needs_a_lease_that_can_be_renewed_and_a_probation_that_ends(name: str, value: timedelta) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} is .*, expected a timedelta of at least"):
        ConvertUnitOperator(
            task_id="unit", unit="file:///x/units/0.json", campaign="lake", staging="file:///x", **arguments
        )


def test_a_campaign_checks_what_it_is_given_besides() -> None:
    from airflow.sdk import DAG

    from airflow_hive_to_delta import GlueSource, hive_to_delta_campaign

    for wrong, message in (
        ({"probation": AGO}, "probation is -1 day"),
        ({"only": []}, "only is empty"),
        ({"only": 5}, "only is 5, expected a name or pattern"),
        ({"target": "sales_delta"}, "target is 'sales_delta', expected GlueTarget or CatalogTarget"),
        ({"listing": "s3"}, "listing is 's3', expected FileListing"),
        ({"wave": 2_000}, "wave is 2000, expected Wave"),
    ):
        arguments: dict[str, Any] = {"source": GlueSource("sales"), "staging": "s3://bucket/staging", **wrong}
        with DAG("d", schedule=None), pytest.raises((ValueError, TypeError), match=message):
            hive_to_delta_campaign("lake", **arguments)
