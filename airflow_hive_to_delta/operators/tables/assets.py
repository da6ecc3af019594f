"""Tables as Airflow's assets: an event for each table that a task has written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The alias that the assets of all tables belong to, unless another is given.
DEFAULT_ALIAS = "hive_to_delta"


def with_alias_outlet(kwargs: dict[str, Any], alias: str | None) -> dict[str, Any]:
    """The arguments of an operator that emits assets under an alias, with the alias among its outlets.

    ``outlets`` must not be a parameter of the operator itself: Airflow would then take its default for a mapped task.

    :param alias: None: the operator emits no assets, and its arguments stay as they are.
    """
    outlets = list(kwargs.get("outlets") or [])
    if alias is None or AssetAlias(alias) in outlets:
        return kwargs
    return {**kwargs, "outlets": [*outlets, AssetAlias(alias)]}


def emit_asset(context: Context, alias: str | None, result: dict[str, Any]) -> None:
    """Emit an event for the table of a result, whose asset has the table's location as its URI.

    :param alias: the alias that the asset belongs to; None: there is no event.
    """
    if alias is None:
        return
    extra: dict[str, Any] = {
        name: result[name] for name in ("source_table", "target_table", "version") if name in result
    }
    context["outlet_events"][AssetAlias(alias)].add(Asset(uri=asset_uri(result["location"])), extra=extra)


def asset_uri(location: str) -> str:
    """The URI of a table's asset: its location, with the characters escaped at which Airflow would cut it off."""
    return quote(location, safe="/:=@+,;!$&'()*~")
