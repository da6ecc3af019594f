"""Converting a table, as a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.results import ConversionResult, VerifyLevel
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.arguments import Reader, read_one_of, read_optional
from airflow_hive_to_delta.operators.table_operator import ActionRun, TableOperator
from airflow_hive_to_delta.operators.tables.assets import DEFAULT_ALIAS, emit_asset, with_alias_outlet
from airflow_hive_to_delta.operators.tables.files import FileLists, StepResults
from airflow_hive_to_delta.operators.tables.result_store import Result
from airflow_hive_to_delta.operators.tables.selection import TargetSchema, schema_for
from airflow_hive_to_delta.operators.tables.verification import explain_failed_verification, run_name
from airflow_hive_to_delta.report.outcomes import TableOutcome

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context, XComArg


_ADVICE = (
    "If Hive has written since, sync the table by a new run. If not, roll the table back. Then clear this task, with "
    "all that comes after it."
)
#: The statuses of tables that this run, in whichever try, has changed.
_CHANGED = ("converted", "registered")


class ConvertTableOperator(TableOperator):
    """Turns one Hive table, or each table of a batch, into a Delta table in place, by a Spark job on an engine.

    Returns the :class:`ConversionResult` of each table as a dict. Running it again is safe: a table that is Delta
    already is a success that changes nothing. An error that trying again cannot help fails the task at once, any other
    leaves it to its retries. Every table that this run has converted or registered is an asset with its location as its
    URI, so that ``schedule=[Asset("s3://bucket/orders")]`` or ``schedule=[AssetAlias("hive_to_delta")]`` waits for it.
    One that was a Delta table before is no event.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param files: what :class:`ListFilesOperator` returned for it; neither is its text.
    :param results: what a step before it left of the tables as ``outcomes``: those that failed there are passed over.
    :param target_catalog: the catalog to register the table in. (templated)
    :param target_schema: the schema, or a mapping of database to schema. Neither catalog nor schema: the table is
        written and not registered. (templated)
    :param verify: compare each table with its files right after the conversion, in the same job: by ``counts`` or in
        ``full``, as :class:`VerifyTableOperator` does. The result then has the ``verification``, which such an operator
        after this one takes instead of running a job of its own. A table that differs fails the task without retries,
        and stays a Delta table; when the task is cleared, it is not converted again, but compared again. None: only
        convert. (templated)
    :param options: :class:`ConversionOptions`, or a dict of them. Their ``run_id`` is ``dag_id/run_id``: by it a later
        try knows what an earlier one has converted; ``user_metadata`` is the same unless it is given. (templated)
    :param max_workers: tables of a batch that are converted side by side.
    :param asset_alias: the alias that the assets of converted tables belong to; None: there are no assets. With
        ``partial``, pass ``outlets=[AssetAlias(…)]`` too: Airflow shows a mapped task's outlets before it is made.
    """

    action: ClassVar[ReportedAction] = "convert"
    verb = "Convert"
    readers: ClassVar[Mapping[str, Reader]] = {"verify": read_optional(read_one_of(*get_args(VerifyLevel)))}
    template_fields: Sequence[str] = (
        *("target_catalog", "target_schema", "verify", "files", "results"),
        *TableOperator.template_fields,
    )
    untrusted_fields: Sequence[str] = ("table", "files", "results")
    ui_color = "#fef7e0"

    def __init__(
        self,
        *,
        files: FileLists | XComArg,
        results: StepResults | XComArg | None = None,
        target_catalog: str | None = None,
        target_schema: TargetSchema = None,
        verify: VerifyLevel | str | None = None,
        max_workers: int = 4,
        asset_alias: str | None = DEFAULT_ALIAS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**with_alias_outlet(kwargs, asset_alias))
        self.take_files(files, results, max_workers)
        if target_catalog is not None and target_schema is None:
            raise ValueError(
                f"target_schema is missing beside target_catalog={target_catalog!r}; give both, or neither to leave "
                "the tables unregistered"
            )
        self.target_catalog = target_catalog
        self.target_schema = target_schema
        self.verify = verify
        self.asset_alias = asset_alias
        self._converted: list[tuple[TableInfo, ConversionResult]] = []
        self._run_id = ""
        self.check_arguments()

    def run_action(self, context: Context, tables: Sequence[TableInfo]) -> ActionRun:
        self._run_id = run_name(context)
        run = super().run_action(context, tables)
        made = [(kept.table, ConversionResult.from_dict(kept.result)) for kept in run.results]
        self._converted = [(table, result) for table, result in made if result.success and result.status in _CHANGED]
        for _, result in self._converted:
            emit_asset(context, self.asset_alias, result.to_dict())
        return run

    def job_arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        return {
            **super().job_arguments(context, tables),
            "options": {
                **self.options,
                "user_metadata": self.options["user_metadata"] or self._run_id,
                "run_id": self._run_id,
            },
            "target_catalog": self.target_catalog,
            "target_schemas": [schema_for(table, self.target_schema) for table in tables],
        }

    def outcome(self, result: Result, *, from_other_files: bool = False) -> TableOutcome:
        outcome = super().outcome(result, from_other_files=from_other_files)
        verification = result.get("verification")
        if verification and not verification["success"]:
            return explain_failed_verification(outcome, verification, _ADVICE, kept=bool(self.staging))
        if verification:  # a sync may have brought it to a later version before an earlier try was cleared
            outcome.written_version = verification["version"]
        elif result["success"] and result["run_id"] == self._run_id and not from_other_files:
            # Not the latest: others may have written since an earlier try.
            outcome.written_version = 0
        return outcome

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002
        """The Hive tables read and the Delta tables made, with their columns and counts, for OpenLineage."""
        with needs_extra("openlineage", "The lineage of a conversion"):
            from airflow_hive_to_delta.operators.tables.lineage import lineage_of

        return lineage_of(self._converted)
