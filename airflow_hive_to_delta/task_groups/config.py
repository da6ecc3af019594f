"""The arguments of the task groups: where tables come from, where they go, and how their tasks run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from airflow_hive_to_delta.job.manifests import INLINE_LIMIT
from airflow_hive_to_delta.operators.arguments import check_count
from airflow_hive_to_delta.operators.file_lister import Strategy


@dataclass(frozen=True)
class GlueSource:
    """Tables of AWS Glue: see :class:`GlueDiscoverOperator`."""

    databases: str | Sequence[str]
    include: str | Sequence[str] = "*"
    exclude: str | Sequence[str] = ()
    catalog_id: str | None = None


@dataclass(frozen=True)
class CatalogSource:
    """Tables of Unity Catalog, ``hive_metastore`` or another catalog of Spark: see :class:`CatalogDiscoverOperator`."""

    allow: str | Sequence[str]
    deny: str | Sequence[str] = ("*.information_schema.*",)


@dataclass(frozen=True)
class FileListing:
    """How files are found: see :class:`ListFilesOperator`."""

    strategy: Strategy = "s3"
    inventory_manifests: str | Sequence[str] | None = None
    glue_database: str | None = None
    inline_limit: int = INLINE_LIMIT


@dataclass(frozen=True)
class Target:
    """Where Delta tables are registered: a schema for all of them, or one for each database. Nowhere by default."""

    catalog: str | None = None
    schema: str | Mapping[str, str] | None = None
    #: Create a schema that is missing. Unset: through Spark SQL it is created, in Glue the run fails and names it.
    create_schema: bool | None = None


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

    def __post_init__(self) -> None:
        check_count("retries", self.retries, least=0)
        for name in ("max_active", "batch_size"):
            check_count(name, getattr(self, name), least=1, optional=True)
