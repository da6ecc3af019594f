"""Converting a table, as a Spark job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.core.models import ConversionResult, TableInfo
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.operators.discover import TargetSchema, schema_for
from airflow_hive_to_delta.operators.spark_job import TableOperator
from airflow_hive_to_delta.operators.tables import (
    as_failed,
    batch_of,
    check_count,
    fail,
)
from airflow_hive_to_delta.report import LIST_AGAIN, TableOutcome, redacted_text
from airflow_hive_to_delta.staging import RunFolder, safe_name

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context, XComArg


def _redacted(result: ConversionResult) -> ConversionResult:
    return replace(result, error=redacted_text(result.error) if result.error else None)


def asset_uri(location: str) -> str:
    """The asset of a table: its location, with what a URI cannot hold escaped, as Airflow would cut it off."""
    return quote(location, safe="/:=@+,;!$&'()*~")


class ConvertTableOperator(TableOperator):
    """Turns one Hive table, or each table of a batch, into a Delta table in place, by a Spark job on an engine.

    Returns the :class:`ConversionResult` of each table as a dict. Running it again is safe: a table that is Delta
    already is a success that changes nothing. An error that trying again cannot help fails the task at once, any other
    leaves it to its retries. Every converted table is an asset with its location as its URI, so that
    ``schedule=[Asset("s3://bucket/orders")]`` or ``schedule=[AssetAlias("hive_to_delta")]`` waits for it.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param files: what :class:`ListFilesOperator` returned for it; neither is its text.
    :param target_catalog: the catalog to register the table in. (templated)
    :param target_schema: the schema, or a mapping of database to schema. Neither catalog nor schema: the table is
        written and not registered. (templated)
    :param options: :class:`ConversionOptions`, or a dict of them. (templated)
    :param max_workers: tables of a batch that are converted side by side.
    :param asset_alias: the alias that the assets of converted tables belong to; None: there are no assets. With
        ``partial``, pass ``outlets=[AssetAlias(…)]`` too: Airflow shows a mapped task's outlets before it is made.
    """

    template_fields: Sequence[str] = (
        *("files", "target_catalog", "target_schema"),
        *TableOperator.template_fields,
    )
    untrusted_fields: Sequence[str] = ("table", "files")
    ui_color = "#fef7e0"

    def __init__(
        self,
        *,
        files: dict[str, Any] | Sequence[dict[str, Any]] | XComArg,
        target_catalog: str | None = None,
        target_schema: TargetSchema = None,
        max_workers: int = 4,
        asset_alias: str | None = "hive_to_delta",
        **kwargs: Any,
    ) -> None:
        outlets = list(kwargs.get("outlets") or [])
        if asset_alias is not None and AssetAlias(asset_alias) not in outlets:
            kwargs["outlets"] = [*outlets, AssetAlias(asset_alias)]
        super().__init__(**kwargs)
        if target_catalog is not None and target_schema is None:
            raise ValueError(
                f"target_schema is missing beside target_catalog={target_catalog!r}; give both, or neither to leave "
                "the tables unregistered"
            )
        check_count("max_workers", max_workers, least=1)
        self.files = files
        self.target_catalog = target_catalog
        self.target_schema = target_schema
        self.max_workers = max_workers
        self.asset_alias = asset_alias
        self._converted: list[tuple[TableInfo, ConversionResult]] = []

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[dict[str, Any]]:
        lists = {files["table"]: files for files in batch_of(self.files, "files")}
        if missing := [table.qualified_name for table in tables if table.qualified_name not in lists]:
            raise AirflowFailException(f"files has no list for {', '.join(missing)}, only for {', '.join(lists)}")
        listed = [table for table in tables if "error" not in lists[table.qualified_name]]
        # Of a batch, those that could not be listed: their task had its tries, and none of this one's can help.
        unlisted = [
            replace(TableOutcome.of_error(**lists[table.qualified_name]), retryable=False, advice=LIST_AGAIN)
            for table in tables
            if table not in listed
        ]
        results = self._convert(context, listed, lists)
        self._converted = [(table, result) for table, result in zip(listed, results, strict=True) if result.success]
        for table, result in self._converted:
            self._add_asset(context, table, result)
        outcomes = [as_failed(TableOutcome.of_result(result.to_dict())) for result in results]
        failed = [outcome for outcome in (*outcomes, *unlisted) if outcome.status == "failed"]
        if failed:
            fail(context, [*outcomes, *unlisted])
        return [result.to_dict() for result in results]

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002
        """What OpenLineage is told: the Hive tables read, and the Delta tables made, with their columns and counts."""
        from airflow_hive_to_delta.operators.lineage import lineage_of

        return lineage_of(self._converted)

    def _convert(
        self, context: Context, tables: Sequence[TableInfo], lists: dict[str, dict[str, Any]]
    ) -> list[ConversionResult]:
        arguments = {
            "tables": [table.to_dict() for table in tables],
            "lists": [lists[table.qualified_name] for table in tables],
            "target_catalog": self.target_catalog,
            "target_schemas": [schema_for(table, self.target_schema) for table in tables],
            "options": self.options,
            "max_workers": self.max_workers,
        }
        try:
            done = self.run_job(JobRequest("convert", arguments, f"Convert {self.table_label}"))
        except JobError as error:
            fail(context, [TableOutcome.of_error(t.qualified_name, str(error), error.retryable) for t in tables])
        results = [_redacted(ConversionResult.from_dict(result)) for result in done["results"]]
        for result in results:
            self.log.info("%s", result)
        folder = self.run_folder(context)
        return results if folder is None else [self._kept(folder, result) for result in results]

    def _kept(self, folder: RunFolder, result: ConversionResult) -> ConversionResult:
        """Keep the result with the run; a table that an earlier try converted has the result of that try."""
        place = folder.file("results", f"{safe_name(result.source_table)}.json")
        if result.status == "already_delta" and place.exists():
            earlier = ConversionResult.from_dict(json.loads(place.read_text()))
            if earlier.success and (earlier.location, earlier.version) == (result.location, result.version):
                return earlier
        place.write_text(json.dumps(result.to_dict()))
        return result

    def _add_asset(self, context: Context, table: TableInfo, result: ConversionResult) -> None:
        if self.asset_alias is None:
            return
        extra: dict[str, Any] = {
            "source_table": table.qualified_name,
            "target_table": result.target_table,
            "version": result.version,
        }
        context["outlet_events"][AssetAlias(self.asset_alias)].add(Asset(uri=asset_uri(result.location)), extra=extra)
