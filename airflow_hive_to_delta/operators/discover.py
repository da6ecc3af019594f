"""Finding the tables to migrate: in AWS Glue, or in a catalog that Spark knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator, conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions, check_count
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.operators.arguments import Options, check_names, options_dict
from airflow_hive_to_delta.operators.aws.identity import aws_clients
from airflow_hive_to_delta.operators.spark_job import SparkJobOperator
from airflow_hive_to_delta.operators.staging import RunFolder, check_root
from airflow_hive_to_delta.operators.tables.outcomes import airflow_error
from airflow_hive_to_delta.operators.tables.selection import Choose, TargetSchema, schema_for, select_tables
from airflow_hive_to_delta.report.outcomes import TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The XCom with the tables that are left out, as outcomes with their reasons.
LEFT_OUT = "left_out"

#: The XCom with the databases and patterns that found nothing.
UNMATCHED = "unmatched"
#: What a discovery must find: a table that goes on; any table, even if all are left out; or nothing.
AtLeastOne = bool | Literal["found"]


class DiscoverOperator(BaseOperator):
    """The base of discovering operators, which return the tables that go on, and push those that are left out.

    The parameters are those of :class:`GlueDiscoverOperator`.
    """

    aws_conn_id: str | None
    region_name: str | None
    staging: str | None
    staging_conn_id: str | None
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        target_catalog: str | None = None,
        target_schema: TargetSchema = None,
        choose: Choose | None = None,
        batch_size: int | None = None,
        options: Options = None,
        leave_out_delta: bool = False,
        at_least_one: AtLeastOne = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if choose is not None and not callable(choose):
            raise TypeError(f"choose is {choose!r}, expected a function of one table")
        check_count("batch_size", batch_size, least=1, optional=True)
        if at_least_one not in (True, False, "found"):
            raise ValueError(f"at_least_one is {at_least_one!r}, expected True, False or 'found'")
        if not (target_schema is None or isinstance(target_schema, (str, Mapping))):
            raise TypeError(f"target_schema is {target_schema!r}, expected a name, or a mapping of database to name")
        self.target_catalog = target_catalog
        self.target_schema = target_schema
        self.choose = choose
        self.batch_size = batch_size
        self.options = options_dict(options)
        self.leave_out_delta = leave_out_delta
        self.at_least_one = at_least_one

    def check_staging(self, context: Context) -> None:
        """Fail, before anything is written anywhere, when the staging root cannot be written to."""
        if self.staging is not None:
            RunFolder(
                self.staging, context, conn_id=self.staging_conn_id, aws_conn_id=self.aws_conn_id
            ).check_writable()

    def select_and_batch(
        self, context: Context, found: Sequence[TableInfo], wanted: str, unmatched: Sequence[str]
    ) -> list[Any]:
        """The convertible tables, or batches of them, in a stable order; pushes what is left out.

        :param wanted: says which tables were looked for.
        :param unmatched: the databases and patterns of it that found nothing.
        """
        for name in unmatched:
            self.log.warning("Nothing was found by %s", name)
        context["ti"].xcom_push(UNMATCHED, list(unmatched))
        selection = select_tables(
            found,
            choose=self.choose,
            leave_out_delta=self.leave_out_delta,
            target_schema=self.target_schema,
            options=ConversionOptions.from_dict(self.options),
        )
        tables, left_out = selection.tables, selection.left_out
        for outcome in left_out:
            self.log.info("Left out %s: %s: %s", outcome.table, outcome.status, outcome.error)
        self.log.info("%d tables go on, %d are left out", len(tables), len(left_out))
        context["ti"].xcom_push(LEFT_OUT, [outcome.to_dict() for outcome in left_out])
        self._check_target(tables)
        if not found if self.at_least_one == "found" else self.at_least_one and not tables:
            raise AirflowFailException(_none_goes_on(wanted, left_out, unmatched))
        documents = [table.without_other_properties().to_dict() for table in tables]
        size = self.batch_size
        items = [documents[i : i + size] for i in range(0, len(documents), size)] if size else documents
        _check_map_length(len(items), len(tables))
        return items

    def _check_target(self, tables: Sequence[TableInfo]) -> None:
        """Fail when Glue has not the databases that the tables go into. What only Spark knows, the jobs look at."""
        options = ConversionOptions.from_dict(self.options)
        schemas = sorted({schema.lower() for table in tables if (schema := schema_for(table, self.target_schema))})
        if options.register_in != "glue" or not schemas:
            return
        from airflow_hive_to_delta.core.catalogs.registration import creates_schema, has_glue_database, missing_schema
        from airflow_hive_to_delta.core.errors import HiveToDeltaError

        if creates_schema(options):
            return
        with aws_clients(self.aws_conn_id, self.region_name):
            try:
                missing = [name for name in schemas if not has_glue_database(self.target_catalog, name, options)]
                if missing:
                    raise AirflowFailException(missing_schema(self.target_catalog, ", ".join(missing), "glue", options))
            except HiveToDeltaError as error:
                raise airflow_error(error) from error


class GlueDiscoverOperator(DiscoverOperator):
    """Finds the Parquet tables of databases in AWS Glue.

    Returns the convertible tables as dicts, ordered by database and name, or batches of them; map the next task over
    them. What cannot be converted is pushed as ``left_out``, with the reason.

    :param databases: one Glue database, or several. (templated)
    :param include: patterns such as ``dim_*`` or ``sales.*``; one without a dot is for the table's name, one with a dot
        for ``database.table``. Case does not matter. (templated)
    :param exclude: patterns of tables to pass over, even if they are included. (templated)
    :param aws_conn_id: the AWS connection; None: boto3's own way to credentials. (templated)
    :param region_name: the region of the Glue catalog, when the connection names none. (templated)
    :param catalog_id: the account of the Glue catalog, when it is not the connection's own. (templated)
    :param target_catalog: the catalog that the tables will be registered in. (templated)
    :param target_schema: where the tables will go, one schema or one for each database: two tables that would get
        the same name there are named after their databases, too, and a database that Glue should have and has not fails
        the task. (templated)
    :param staging: the staging root of the tasks that follow: that it can be written to is tried out first, before
        anything is converted. (templated)
    :param staging_conn_id: the connection of the staging root; ``aws_conn_id`` for one on S3. (templated)
    :param choose: a function that takes a table as a dict and returns it, with another ``target_table_name`` for
        example, or None to leave it out.
    :param batch_size: return lists of this many tables, each for one task, instead of single tables.
    :param options: :class:`ConversionOptions`, which say what is convertible. (templated)
    :param leave_out_delta: leave out what is a Delta table in Glue already, for tasks that need a Hive table.
    :param at_least_one: True: fail when no table goes on, for a DAG that is triggered with the name of one; ``found``:
        when none was found at all. A database or pattern that finds nothing is named in the log and in the report.
    """

    template_fields: Sequence[str] = (
        *("databases", "include", "exclude", "aws_conn_id", "region_name", "catalog_id", "options"),
        *("target_catalog", "target_schema", "staging", "staging_conn_id"),
    )

    def __init__(
        self,
        *,
        databases: str | Sequence[str],
        include: str | Sequence[str] = "*",
        exclude: str | Sequence[str] = (),
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        catalog_id: str | None = None,
        staging: str | None = None,
        staging_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_root(staging)
        self.staging = staging
        self.staging_conn_id = staging_conn_id
        for argument, given in (("databases", databases), ("include", include)):
            check_names(argument, given)
        check_names("exclude", exclude, empty=True)
        if isinstance(self.target_schema, Mapping):
            _check_schemas(self.target_schema, databases)
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.databases = databases
        self.include = include
        self.exclude = exclude
        self.catalog_id = catalog_id

    def execute(self, context: Context) -> list[Any]:
        from airflow_hive_to_delta.core.catalogs.discovery import GlueDiscovery
        from airflow_hive_to_delta.core.catalogs.nested_tables import mark_nested_tables
        from airflow_hive_to_delta.core.errors import HiveToDeltaError

        self.check_staging(context)
        found: list[TableInfo] = []
        table_counts: dict[str, int] = {}
        with aws_clients(self.aws_conn_id, self.region_name):
            for database in sorted(set(_as_list(self.databases))):
                self.log.info("Reading the tables of the Glue database %s", database)
                discovery = GlueDiscovery(database, region=self.region_name, catalog_id=self.catalog_id)
                try:
                    tables = discovery.discover()
                except HiveToDeltaError as error:
                    raise airflow_error(error) from error
                found += [table for table in tables if self._wants(table)]
                table_counts[database] = len(tables)
        mark_nested_tables(found)  # across databases, too
        wanted = f"include={self.include!r} and exclude={self.exclude!r} in the Glue database(s) "
        databases = {(table.database or "").lower() for table in found}
        unmatched = [
            *(
                _describe_unmatched(name, table_counts[name])
                for name in _as_list(self.databases)
                if name.lower() not in databases
            ),
            *(f"include={p!r}" for p in _as_list(self.include) if not any(_matches(t, p) for t in found)),
        ]
        return self.select_and_batch(context, found, wanted + ", ".join(_as_list(self.databases)), unmatched)

    def _wants(self, table: TableInfo) -> bool:
        included = any(_matches(table, pattern) for pattern in _as_list(self.include))
        return included and not any(_matches(table, pattern) for pattern in _as_list(self.exclude))


class CatalogDiscoverOperator(DiscoverOperator, SparkJobOperator):
    """Finds the Parquet tables of Unity Catalog, ``hive_metastore`` or any other catalog of Spark, by a job.

    Returns and pushes what :class:`GlueDiscoverOperator` does.

    :param allow: patterns on ``catalog.schema.table``, such as ``hive_metastore.sales.*``. (templated)
    :param deny: patterns of tables to pass over. (templated)
    :param engine: where the job runs.

    The other parameters are those of :class:`GlueDiscoverOperator`.
    """

    template_fields: Sequence[str] = (
        *("allow", "deny", "target_catalog", "target_schema", "options"),
        *SparkJobOperator.template_fields,
    )

    def __init__(
        self,
        *,
        allow: str | Sequence[str],
        deny: str | Sequence[str] = ("*.information_schema.*",),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_names("allow", allow)
        check_names("deny", deny, empty=True)
        self.allow = allow
        self.deny = deny

    def execute(self, context: Context) -> list[Any]:
        self.check_staging(context)
        arguments = {"allow": _as_list(self.allow), "deny": _as_list(self.deny)}
        try:
            result = self.run_job(JobRequest("discover", arguments, "Discover tables"), context)
        except JobError as error:
            raise airflow_error(error) from error
        found = [TableInfo.from_dict(table) for table in result["tables"]]
        names = [table.qualified_name.lower() for table in found]
        unmatched = [f"allow={p!r}" for p in _as_list(self.allow) if not any(fnmatchcase(n, p.lower()) for n in names)]
        return self.select_and_batch(context, found, f"allow={self.allow!r} and deny={self.deny!r}", unmatched)


def _describe_unmatched(database: str, table_count: int) -> str:
    """How a database without a wanted table is named; if it has tables, the patterns are named as the cause."""
    passed_over = f" (include and exclude leave none of its {table_count} table(s))" if table_count else ""
    return f"the database {database}{passed_over}"


def _check_schemas(schemas: Mapping[str, str], databases: str | Sequence[str]) -> None:
    """Refuse a mapping without a schema for one of the databases; templates are known only when they run."""
    if missing := [name for name in _as_list(databases) if "{{" not in name and name not in schemas]:
        raise ValueError(f"target_schema has no schema for {', '.join(missing)}, only for {', '.join(schemas)}")


def _check_map_length(items: int, tables: int) -> None:
    most = conf.getint("core", "max_map_length", fallback=1024)
    if items <= most:
        return
    needed = -(-tables // most)
    raise AirflowFailException(
        f"{tables} tables make {items} mapped tasks, but Airflow maps at most {most} (core.max_map_length). Pass "
        f"batch_size={needed} or more, so that one task takes several tables, or raise that setting"
    )


def _matches(table: TableInfo, pattern: str) -> bool:
    name = f"{table.database}.{table.name}" if "." in pattern else table.name
    return fnmatchcase(name.lower(), pattern.lower())


def _none_goes_on(wanted: str, left_out: Sequence[TableOutcome], unmatched: Sequence[str]) -> str:
    if not left_out:
        nothing = f": nothing by {', nothing by '.join(unmatched)}" if unmatched else ""
        return f"No table was found by {wanted}, expected at least one{nothing}. Check the names"
    first = "; ".join(f"{outcome.table} is {outcome.status}: {outcome.error}" for outcome in left_out[:10])
    more = f"; and {len(left_out) - 10} more" if len(left_out) > 10 else ""
    return f"Every table that was found by {wanted} is left out, expected at least one to go on. {first}{more}"


def _as_list(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
