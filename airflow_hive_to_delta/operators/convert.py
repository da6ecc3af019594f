"""Converting a table, as a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.results import ConversionResult
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.discover import TargetSchema, schema_for
from airflow_hive_to_delta.operators.results import FilesOperator, Result, WritesAssets
from airflow_hive_to_delta.report.outcomes import TableOutcome

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


#: The statuses of tables that this run, in whichever try, has changed.
_CHANGED = ("converted", "registered")


class ConvertTableOperator(WritesAssets):
    """Turns one Hive table, or each table of a batch, into a Delta table in place, by a Spark job on an engine.

    Returns the :class:`ConversionResult` of each table as a dict. Running it again is safe: a table that is Delta
    already is a success that changes nothing. An error that trying again cannot help fails the task at once, any other
    leaves it to its retries. Every table that this run has converted or registered is an asset with its location as its
    URI, so that ``schedule=[Asset("s3://bucket/orders")]`` or ``schedule=[AssetAlias("hive_to_delta")]`` waits for it.
    One that was a Delta table before is no event.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param files: what :class:`ListFilesOperator` returned for it; neither is its text.
    :param target_catalog: the catalog to register the table in. (templated)
    :param target_schema: the schema, or a mapping of database to schema. Neither catalog nor schema: the table is
        written and not registered. (templated)
    :param options: :class:`ConversionOptions`, or a dict of them. Their ``run_id`` is ``dag_id/run_id``: by it a later
        try knows what an earlier one has converted; ``user_metadata`` is the same unless it is given. (templated)
    :param max_workers: tables of a batch that are converted side by side.
    :param asset_alias: the alias that the assets of converted tables belong to; None: there are no assets. With
        ``partial``, pass ``outlets=[AssetAlias(…)]`` too: Airflow shows a mapped task's outlets before it is made.
    """

    action: ClassVar[ReportedAction] = "convert"
    verb = "Convert"
    template_fields: Sequence[str] = ("target_catalog", "target_schema", *FilesOperator.template_fields)
    ui_color = "#fef7e0"

    def __init__(self, *, target_catalog: str | None = None, target_schema: TargetSchema = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if target_catalog is not None and target_schema is None:
            raise ValueError(
                f"target_schema is missing beside target_catalog={target_catalog!r}; give both, or neither to leave "
                "the tables unregistered"
            )
        self.target_catalog = target_catalog
        self.target_schema = target_schema
        self._converted: list[tuple[TableInfo, ConversionResult]] = []
        self._this_run = ""

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[Result]:
        run: Any = context["dag_run"]
        self._this_run = f"{run.dag_id}/{run.run_id}"
        return super().execute_for(context, tables)

    def arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        return {
            **super().arguments(context, tables),
            "options": {
                **self.options,
                "user_metadata": self.options["user_metadata"] or self._this_run,
                "run_id": self._this_run,
            },
            "target_catalog": self.target_catalog,
            "target_schemas": [schema_for(table, self.target_schema) for table in tables],
        }

    def outcome(self, result: Result) -> TableOutcome:
        outcome = super().outcome(result)
        by_this_run = result["run_id"] == self._this_run and not self.is_of_another_list(result)
        if result["success"] and by_this_run:
            # Not the latest: others may have written since an earlier try.
            outcome.written_version = 0
        return outcome

    def done(self, context: Context, results: Sequence[tuple[TableInfo, Result]]) -> None:
        made = [(table, ConversionResult.from_dict(result)) for table, result in results]
        self._converted = [(table, result) for table, result in made if result.status in _CHANGED]
        for _, result in self._converted:
            self.add_asset(context, result.to_dict())

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002
        """What OpenLineage is told: the Hive tables read, and the Delta tables made, with their columns and counts."""
        from airflow_hive_to_delta.operators.lineage import lineage_of

        return lineage_of(self._converted)
