"""Finding the tables to migrate: in AWS Glue, or in a catalog that Spark knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.core.models import ConversionOptions, TableInfo
from airflow_hive_to_delta.core.target_names import same_target, tables_by_target, target_key, with_target_names
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.operators.identity import aws_clients
from airflow_hive_to_delta.operators.spark_job import SparkJobOperator
from airflow_hive_to_delta.operators.tables import Options, Table, check_count, check_names, failure, options_dict
from airflow_hive_to_delta.report import TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The XCom with the tables that are not handed on, as outcomes with their reasons.
LEFT_OUT = "left_out"

#: Takes a discovered table and returns it, changed or not; None leaves it out.
Choose = Callable[[Table], Table | None]
#: One target schema for all, or one for each database.
TargetSchema = str | Mapping[str, str] | None


def schema_for(table: TableInfo, target_schema: TargetSchema) -> str | None:
    """The schema that a table goes into."""
    if isinstance(target_schema, Mapping):
        if table.database is None or table.database not in target_schema:
            raise AirflowFailException(
                f"target_schema has no schema for the database {table.database} of {table.qualified_name}, only for "
                f"{', '.join(target_schema)}"
            )
        return target_schema[table.database]
    return target_schema


class _HandsOn:
    """What discovering operators share: which tables go on, under which names, in which batches."""

    log: Any

    def choose_by(
        self,
        target_schema: TargetSchema,
        choose: Choose | None,
        batch_size: int | None,
        options: Options,
        leave_out_delta: bool,
        at_least_one: bool,
    ) -> None:
        if choose is not None and not callable(choose):
            raise TypeError(f"choose is {choose!r}, expected a function of one table")
        check_count("batch_size", batch_size, least=1, optional=True)
        if not (target_schema is None or isinstance(target_schema, (str, Mapping))):
            raise TypeError(f"target_schema is {target_schema!r}, expected a name, or a mapping of database to name")
        self.target_schema = target_schema
        self.choose = choose
        self.batch_size = batch_size
        self.options = options_dict(options)
        self.leave_out_delta = leave_out_delta
        self.at_least_one = at_least_one

    def hand_on(self, context: Context, found: Sequence[TableInfo], wanted: str) -> list[Any]:
        """The convertible tables, or batches of them, in a stable order; pushes what is left out.

        ``wanted`` says which tables were looked for.
        """
        left_out: list[TableOutcome] = []
        tables: list[TableInfo] = []
        options = ConversionOptions.from_dict(self.options)
        for table in self._named(self._hive_only(self._chosen(found, left_out), left_out)):
            if reason := table.why_refused(options):
                left_out.append(TableOutcome(table.qualified_name, "refused", error=reason))
            else:
                tables.append(table)
        for outcome in left_out:
            self.log.info("Left out %s: %s: %s", outcome.table, outcome.status, outcome.error)
        self.log.info("%d tables go on, %d are left out", len(tables), len(left_out))
        context["ti"].xcom_push(LEFT_OUT, [outcome.to_dict() for outcome in left_out])
        if self.at_least_one and not tables:
            raise AirflowFailException(_none_goes_on(wanted, left_out))
        documents = [table.without_other_properties().to_dict() for table in tables]
        size = self.batch_size
        items = [documents[i : i + size] for i in range(0, len(documents), size)] if size else documents
        self._check_length(len(items), len(tables))
        return items

    def _chosen(self, found: Sequence[TableInfo], left_out: list[TableOutcome]) -> list[TableInfo]:
        if self.choose is None:
            return list(found)
        chosen = []
        for table in found:
            answer = self.choose(table.to_dict())
            if answer is None:
                left_out.append(TableOutcome(table.qualified_name, "skipped", error="Left out by choose"))
            elif isinstance(answer, Mapping):
                chosen.append(TableInfo.from_dict(dict(answer)))
            else:
                raise AirflowFailException(
                    f"choose returned {answer!r:.200} for {table.qualified_name}, expected the table as a dict, or None"
                )
        return chosen

    def _hive_only(self, tables: list[TableInfo], left_out: list[TableOutcome]) -> list[TableInfo]:
        if not self.leave_out_delta:
            return tables
        for table in tables:
            if table.format == "delta":
                reason = "It is a Delta table in its catalog: cut over, or never a Hive table"
                left_out.append(TableOutcome(table.qualified_name, "skipped", error=reason))
        return [table for table in tables if table.format != "delta"]

    def _named(self, tables: Sequence[TableInfo]) -> list[TableInfo]:
        schemas = {table.qualified_name: schema_for(table, self.target_schema) for table in tables}

        def schema_of(table: TableInfo) -> str | None:
            return schemas[table.qualified_name]

        named = with_target_names(tables, schema_of)
        claims = tables_by_target(named, schema_of)
        for table in named:
            same = claims[target_key(table, schema_of)]
            if len(same) > 1 and not table.refusal:
                target = ".".join(filter(None, (schema_of(table), table.target_table_name)))
                table.refusal = same_target(same, target)
        return named

    def _check_length(self, items: int, tables: int) -> None:
        most = conf.getint("core", "max_map_length", fallback=1024)
        if items <= most:
            return
        needed = -(-tables // most)
        raise AirflowFailException(
            f"{tables} tables make {items} mapped tasks, but Airflow maps at most {most} (core.max_map_length). Pass "
            f"batch_size={needed} or more, so that one task takes several tables, or raise that setting"
        )


class GlueDiscoverOperator(_HandsOn, BaseOperator):
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
    :param target_schema: where the tables will go, one schema or one for each database: two tables that would get
        the same name there are told apart. (templated)
    :param choose: a function that takes a table as a dict and returns it, with another ``target_table_name`` for
        example, or None to leave it out.
    :param batch_size: hand over lists of this many tables, each for one task, instead of single tables.
    :param options: :class:`ConversionOptions`, which say what is convertible. (templated)
    :param leave_out_delta: leave out what is a Delta table in Glue already, for tasks that need a Hive table.
    :param at_least_one: fail when no table goes on, for a DAG that is triggered with the name of one.
    """

    template_fields: Sequence[str] = (
        *("databases", "include", "exclude", "aws_conn_id", "region_name", "catalog_id", "target_schema", "options"),
    )
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        databases: str | Sequence[str],
        include: str | Sequence[str] = "*",
        exclude: str | Sequence[str] = (),
        catalog_id: str | None = None,
        target_schema: TargetSchema = None,
        choose: Choose | None = None,
        batch_size: int | None = None,
        options: Options = None,
        leave_out_delta: bool = False,
        at_least_one: bool = False,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for argument, given in (("databases", databases), ("include", include)):
            check_names(argument, given)
        check_names("exclude", exclude, empty=True)
        if isinstance(target_schema, Mapping):
            check_schemas(target_schema, databases)
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.databases = databases
        self.include = include
        self.exclude = exclude
        self.catalog_id = catalog_id
        self.choose_by(target_schema, choose, batch_size, options, leave_out_delta, at_least_one)

    def execute(self, context: Context) -> list[Any]:
        from airflow_hive_to_delta.core.discovery import GlueDiscovery
        from airflow_hive_to_delta.core.errors import HiveToDeltaError
        from airflow_hive_to_delta.core.nested_tables import mark_nested_tables

        found: list[TableInfo] = []
        with aws_clients(self.aws_conn_id, self.region_name):
            for database in sorted(set(_several(self.databases))):
                self.log.info("Reading the tables of the Glue database %s", database)
                discovery = GlueDiscovery(database, region=self.region_name, catalog_id=self.catalog_id)
                try:
                    found += [table for table in discovery.discover() if self._wants(table)]
                except HiveToDeltaError as error:
                    raise failure(error) from error
        mark_nested_tables(found)  # across databases, too
        wanted = f"include={self.include!r} and exclude={self.exclude!r} in the Glue database(s) "
        return self.hand_on(context, found, wanted + ", ".join(_several(self.databases)))

    def _wants(self, table: TableInfo) -> bool:
        names = (table.name.lower(), f"{table.database}.{table.name}".lower())

        def matches(patterns: str | Sequence[str]) -> bool:
            return any(fnmatchcase(names["." in pattern], pattern.lower()) for pattern in _several(patterns))

        return matches(self.include) and not matches(self.exclude)


class CatalogDiscoverOperator(_HandsOn, SparkJobOperator):
    """Finds the Parquet tables of Unity Catalog, ``hive_metastore`` or any other catalog of Spark, by a job.

    Returns and pushes what :class:`GlueDiscoverOperator` does.

    :param allow: patterns on ``catalog.schema.table``, such as ``hive_metastore.sales.*``. (templated)
    :param deny: patterns of tables to pass over. (templated)
    :param engine: where the job runs.

    The other parameters are those of :class:`GlueDiscoverOperator`.
    """

    template_fields: Sequence[str] = ("allow", "deny", "target_schema", "options", *SparkJobOperator.template_fields)
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        allow: str | Sequence[str],
        deny: str | Sequence[str] = ("*.information_schema.*",),
        target_schema: TargetSchema = None,
        choose: Choose | None = None,
        batch_size: int | None = None,
        options: Options = None,
        leave_out_delta: bool = False,
        at_least_one: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_names("allow", allow)
        check_names("deny", deny, empty=True)
        self.allow = allow
        self.deny = deny
        self.choose_by(target_schema, choose, batch_size, options, leave_out_delta, at_least_one)

    def execute(self, context: Context) -> list[Any]:
        arguments = {"allow": _several(self.allow), "deny": _several(self.deny)}
        try:
            result = self.run_job(JobRequest("discover", arguments, "Discover tables"), context)
        except JobError as error:
            raise failure(error) from error
        found = [TableInfo.from_dict(table) for table in result["tables"]]
        return self.hand_on(context, found, f"allow={self.allow!r} and deny={self.deny!r}")


def check_schemas(schemas: Mapping[str, str], databases: str | Sequence[str]) -> None:
    """Refuse a mapping without a schema for one of the databases; templates are known only when they run."""
    if missing := [name for name in _several(databases) if "{{" not in name and name not in schemas]:
        raise ValueError(f"target_schema has no schema for {', '.join(missing)}, only for {', '.join(schemas)}")


def _none_goes_on(wanted: str, left_out: Sequence[TableOutcome]) -> str:
    if not left_out:
        return f"No table was found by {wanted}, expected at least one. Check the names"
    first = "; ".join(f"{outcome.table} is {outcome.status}: {outcome.error}" for outcome in left_out[:10])
    more = f"; and {len(left_out) - 10} more" if len(left_out) > 10 else ""
    return f"Every table that was found by {wanted} is left out, expected at least one to go on. {first}{more}"


def _several(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
