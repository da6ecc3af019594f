"""The bases of operators that run a job on an engine: its log in the task's log, its end with the task's end."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import XComNotFound

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.engines import Engine, JobError, JobRequest, LocalSpark
from airflow_hive_to_delta.operators.identity import aws_environment
from airflow_hive_to_delta.operators.tables import Options, TableOrBatch, batch_of, label_of, options_dict, telling
from airflow_hive_to_delta.report import redacted_text
from airflow_hive_to_delta.staging import RunFolder, check_root

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context, XComArg
    from airflow.sdk.types import TaskInstanceKey


class SparkJobLink(BaseOperatorLink):
    """The page of the task's Spark job, where its engine has one."""

    name = "Spark job"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        # Airflow asks on the worker, when the task has ended, and keeps the answer.
        return getattr(operator, "job_page", None) or ""


class SparkJobOperator(BaseOperator):
    """Runs a job on an engine.

    :param engine: where the job runs; an embedded Spark when not given.
    :param aws_conn_id: the AWS connection whose identity the job gets; None: what its process has anyway.
    :param region_name: the AWS region, when the connection names none. (templated)
    :param staging: the staging root for manifests and results, such as ``s3://bucket/staging``. (templated)
    :param staging_conn_id: the connection of the staging root; ``aws_conn_id`` for one on S3. Jobs read manifests with
        their own identity, whichever this is. (templated)
    """

    template_fields: Sequence[str] = ("aws_conn_id", "region_name", "staging", "staging_conn_id")
    #: Of these, XComs are resolved and no text is taken for a template: it comes from a metastore and is not trusted.
    untrusted_fields: Sequence[str] = ()
    operator_extra_links: Collection[BaseOperatorLink] = (SparkJobLink(),)

    def __init__(
        self,
        *,
        engine: Engine | None = None,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        staging: str | None = None,
        staging_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if engine is not None and not isinstance(engine, Engine):
            raise TypeError(f"engine is {engine!r}, expected an engine such as LocalSpark()")
        check_root(staging)
        self.engine: Engine = engine or LocalSpark()
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.staging = staging
        self.staging_conn_id = staging_conn_id
        self.job_page: str | None = None
        self._job: str | None = None

    def run_job(self, request: JobRequest) -> dict[str, Any]:
        """The result of the job. ``JobError``: it has none."""
        environment = aws_environment(self.aws_conn_id, self.region_name)
        self._job = job = self.engine.submit(request, environment)
        self.log.info("Started %s as job %s on %s", request.name, job, type(self.engine).__name__)
        self.job_page = self.engine.page(job)
        try:
            while True:
                status = self.engine.status(job)
                for line in status.log:
                    self.log.info("%s", line)
                if status.state == "ended":
                    break
                time.sleep(self.engine.poll_seconds)
            result = self.engine.result(job)
        finally:
            self.engine.cancel(job)
            self._job = None
        if "error" in result:
            raise JobError(redacted_text(result["error"]), retryable=bool(result["retryable"]))
        return result

    def on_kill(self) -> None:
        if self._job is not None:
            self.log.info("Ending job %s", self._job)
            self.engine.cancel(self._job)

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        if not any(content is getattr(self, name, None) for name in self.untrusted_fields):
            return super().render_template(content, context, jinja_env, seen_oids)
        if isinstance(content, list):
            return [_resolved(item, context) for item in content]
        return _resolved(content, context)

    def run_folder(self, context: Context) -> RunFolder | None:
        """This run's folder under the staging root, if there is one."""
        if self.staging is None:
            return None
        return RunFolder(self.staging, context, conn_id=self.staging_conn_id, aws_conn_id=self.aws_conn_id)


class TableOperator(SparkJobOperator):
    """Runs for one table, or for each table of a batch, and leaves their outcomes however it ends.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param options: :class:`ConversionOptions`, or a dict of them. (templated)
    """

    template_fields: Sequence[str] = ("table", "options", *SparkJobOperator.template_fields)
    untrusted_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: TableOrBatch | XComArg, options: Options = None, **kwargs: Any) -> None:
        kwargs.setdefault("map_index_template", "{{ task.table_label }}")
        super().__init__(**kwargs)
        self.table = table
        self.options = options_dict(options)

    @property
    def table_label(self) -> str:
        return label_of(self.table)

    def execute(self, context: Context) -> dict[str, Any] | list[dict[str, Any]]:
        tables = [TableInfo.from_dict(table) for table in batch_of(self.table, "table")]
        with telling(context, [table.qualified_name for table in tables]):
            documents = self.execute_for(context, tables)
        return documents if isinstance(self.table, list) else documents[0]

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[dict[str, Any]]:
        """What the task returns for each table. An exception is the outcome of all of them, unless it was told."""
        raise NotImplementedError


def _resolved(value: Any, context: Context) -> Any:
    """The value of an XCom or of a mapped argument, None if it was never pushed; any other value as it is."""
    try:
        return value.resolve(context) if hasattr(value, "resolve") else value
    except XComNotFound:  # of a task that was killed, or did not run
        return None
