"""Reading from a storage of the package."""

from __future__ import annotations

from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.uri import Location


def read(where: Storage, path: Location) -> bytes:
    with where.open(path) as stream:
        return stream.read()
