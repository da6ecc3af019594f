"""The arguments of the task groups: where tables come from, where they go, and how their tasks run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal

from airflow_hive_to_delta.core.options import SyncOptions, check_count, check_duration
from airflow_hive_to_delta.job.manifests import INLINE_LIMIT
from airflow_hive_to_delta.operators.arguments import sync_options_dict
from airflow_hive_to_delta.operators.tables.file_lister import Strategy

RegisterIn = Literal["sql", "glue"]


@dataclass(frozen=True)
class GlueSource:
    """Tables of AWS Glue: see :class:`GlueDiscoverOperator`."""

    databases: str | Sequence[str]
    include: str | Sequence[str] = "*"
    exclude: str | Sequence[str] = ()
    catalog_id: str | None = None

    def to_arguments(self) -> dict[str, Any]:
        """The source as arguments of :class:`GlueDiscoverOperator`."""
        return _to_arguments(self)


@dataclass(frozen=True)
class CatalogSource:
    """Tables of Unity Catalog, ``hive_metastore`` or another catalog of Spark: see :class:`CatalogDiscoverOperator`."""

    allow: str | Sequence[str]
    deny: str | Sequence[str] = ("*.information_schema.*",)

    def to_arguments(self) -> dict[str, Any]:
        """The source as arguments of :class:`CatalogDiscoverOperator`."""
        return _to_arguments(self)


@dataclass(frozen=True)
class FileListing:
    """How files are found: see :class:`ListFilesOperator`."""

    strategy: Strategy = "s3"
    inventory_manifests: str | Sequence[str] | None = None
    glue_database: str | None = None
    inline_limit: int = INLINE_LIMIT

    def to_arguments(self) -> dict[str, Any]:
        """How files are found, as arguments of the operators that list them."""
        return {
            "listing": self.strategy,
            "inventory_manifests": self.inventory_manifests,
            "glue_database": self.glue_database,
        }


@dataclass(frozen=True)
class GlueTarget:
    """Delta tables are registered in AWS Glue."""

    #: The Glue database for all tables, or one for each database that they come from.
    schema: str | Mapping[str, str]
    #: Create a database that is missing. Unset: as the options say, which by default fail the run and name it.
    create_schema: bool | None = None
    #: The account of the Glue catalog, when it is not the connection's own.
    catalog_id: str | None = None

    @property
    def register_in(self) -> RegisterIn:
        """How tables are registered, as the options say it: in AWS Glue."""
        return "glue"

    def __post_init__(self) -> None:
        _check_schema(self.schema)

    @property
    def catalog(self) -> str | None:
        """The catalog, as the operators take it."""
        return self.catalog_id


@dataclass(frozen=True)
class CatalogTarget:
    """Delta tables are registered in a catalog of Spark, such as Unity Catalog, by Spark SQL."""

    catalog: str
    #: The schema for all tables, or one for each database that they come from.
    schema: str | Mapping[str, str]
    #: Create a schema that is missing. Unset: as the options say, by which it is created by default.
    create_schema: bool | None = None

    @property
    def register_in(self) -> RegisterIn:
        """How tables are registered, as the options say it: by Spark SQL."""
        return "sql"

    def __post_init__(self) -> None:
        if not isinstance(self.catalog, str) or not self.catalog:
            raise ValueError(f"catalog is {self.catalog!r}, expected the name of a catalog")
        _check_schema(self.schema)


#: Where Delta tables are registered.
Target = GlueTarget | CatalogTarget


def registration_arguments(target: Target | None) -> dict[str, Any]:
    """Where tables are registered, as arguments of the operators; None: they are not."""
    return {
        "target_catalog": None if target is None else target.catalog,
        "target_schema": None if target is None else target.schema,
    }


def _check_schema(schema: str | Mapping[str, str]) -> None:
    if not isinstance(schema, (str, Mapping)) or not schema:
        raise ValueError(f"schema is {schema!r}, expected a name, or a mapping of database to name")


@dataclass
class SyncSettings(SyncOptions):
    """:class:`SyncOptions` of syncs on a schedule, which wait for what Hive jobs are writing unless told otherwise."""

    #: Partitions with a file younger than this wait for the next run, for a Hive job may be writing them: see
    #: :func:`sync_table`. None for tables that are written to all the time, whose partitions would always wait: then
    #: half of what a job writes may be taken over, until the next run.
    quiet_period: timedelta | None = timedelta(minutes=10)


def sync_arguments(settings: SyncSettings | Mapping[str, Any] | None) -> dict[str, Any]:
    """What a sync takes over from Hive, as arguments of :class:`SyncTableOperator`.

    :param settings: in a dict, which may have templates, what is not given is the default of :class:`SyncSettings`.
    """
    if settings is not None and not isinstance(settings, (SyncSettings, Mapping)):
        raise TypeError(f"sync is {settings!r}, expected SyncSettings or a dict of them")
    defaults = sync_options_dict(SyncSettings())
    if isinstance(settings, Mapping):
        return {"sync_options": {**defaults, **sync_options_dict(settings)}}
    return {"sync_options": defaults if settings is None else sync_options_dict(settings)}


@dataclass(frozen=True)
class Staging:
    """Where manifests, results and reports are kept, such as ``s3://bucket/staging``."""

    root: str
    #: The Airflow connection of the storage; the AWS connection of the group for one on S3.
    conn_id: str | None = None


@dataclass(frozen=True)
class PerTable:
    """How the tasks of each table, or of each batch of tables, run."""

    #: Of the tasks before and after them, too.
    retries: int = 2
    retry_delay: timedelta = timedelta(minutes=1)
    #: Tables (or batches) at a time in one DAG run, in each step; as many as Airflow has room for when not given. A
    #: pool limits the steps together.
    max_active: int | None = None
    pool: str | None = None
    execution_timeout: timedelta | None = None
    #: Tables that one task takes. Needed for more tables than Airflow maps (``core.max_map_length``), and worth it for
    #: many small ones: they share one Spark session.
    batch_size: int | None = None
    #: Tables of a batch that are worked on side by side.
    max_workers: int = 4
    #: Verify each table in the job that converts it, right after the conversion: one Spark session instead of two. The
    #: task ``verify`` then takes what that job has found; a table that differs fails its task ``convert``.
    verify_in_convert: bool = False

    def __post_init__(self) -> None:
        check_count("retries", self.retries, least=0)
        check_count("max_workers", self.max_workers, least=1)
        check_duration("retry_delay", self.retry_delay)
        check_duration("execution_timeout", self.execution_timeout, least=timedelta(seconds=1), optional=True)
        for name in ("max_active", "batch_size"):
            check_count(name, getattr(self, name), least=1, optional=True)
        if not isinstance(self.verify_in_convert, bool):
            raise TypeError(f"verify_in_convert is {self.verify_in_convert!r}, expected True or False")


def _to_arguments(config: Any) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(config)}
