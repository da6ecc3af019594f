"""The bases of operators that run a job on an engine: its log in the task's log, its end with the task's end."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import XComNotFound

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines import Engine, JobError, JobRequest, LocalSpark
from airflow_hive_to_delta.job.file_names import safe_name
from airflow_hive_to_delta.links import SparkJobLink
from airflow_hive_to_delta.operators.identity import job_environment
from airflow_hive_to_delta.operators.staging import RunFolder, address, check_root
from airflow_hive_to_delta.operators.tables import Options, TableOrBatch, batch_of, label_of, options_dict, telling

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context, XComArg
    from airflow.sdk.definitions.mappedoperator import OperatorPartial


_KILLED = "The task was killed, and its job was ended with it"
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN")


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
        check_engine(engine)
        check_root(staging)
        self.engine: Engine = engine or LocalSpark()
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.staging = staging
        self.staging_conn_id = staging_conn_id
        self.job_page: str | None = None
        self._job: str | None = None
        self._logs = 0
        self._killed = False

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        # A mapped task is made when it runs; its engine is in the serialized DAG long before.
        check_engine(kwargs.get("engine"))
        return super().partial(**kwargs)

    def run_job(self, request: JobRequest, context: Context | None = None) -> dict[str, Any]:
        """The result of the job. ``JobError``: it has none.

        With a context, and where there is a staging root, the whole of its log is kept with the run.
        """
        here = getattr(self.engine, "runs_on_this_machine", False)
        with job_environment(self.aws_conn_id, self.region_name, on_this_machine=here) as environment:
            self._job = job = self.engine.submit(request, environment)
            self.log.info("Started %s as job %s on %s", request.name, job, type(self.engine).__name__)
            self.job_page = self.engine.page(job)
            try:
                whole_log = self._follow(job)
                if whole_log is not None and context is not None:
                    self._keep_log(whole_log, context, environment)
                result = {} if self._killed else self.engine.result(job)
            except Exception as error:
                if self._killed:
                    raise JobError(_KILLED, retryable=True) from error
                raise
            finally:
                self.engine.cancel(job)
                self._job = None
        if self._killed:
            raise JobError(_KILLED, retryable=True)
        if "error" in result:
            raise JobError(redact_credentials(result["error"]), retryable=bool(result["retryable"]))
        return result

    def on_kill(self) -> None:
        # Airflow goes on in execute() after this.
        self._killed = True
        if self._job is not None:
            self.log.info("The task is being killed: ending its job %s", self._job)
            self.engine.cancel(self._job)

    def _follow(self, job: str) -> Path | None:
        """Write the job's log into the task's until the job has ended; where the whole of it is, if anywhere."""
        while not self._killed:
            status = self.engine.status(job)
            for line in status.log:
                self.log.info("%s", redact_credentials(line))
            if status.state == "ended":
                return status.whole_log
            time.sleep(self.engine.poll_seconds)
        return None

    def _keep_log(self, whole_log: Path, context: Context, environment: Mapping[str, str]) -> None:
        folder = self.run_folder(context)
        if folder is None:
            return
        instance: Any = context["ti"]
        index = "" if instance.map_index in (None, -1) else f".{instance.map_index}"
        self._logs += 1
        again = f".{self._logs}" if self._logs > 1 else ""  # a try may run several jobs
        name = f"{safe_name(instance.task_id.rpartition('.')[2])}{index}.{instance.try_number}{again}.log"
        secrets = [environment[name] for name in _SECRET_VARIABLES if environment.get(name)]
        try:
            place: Any = folder.file("logs", name)
            with whole_log.open(errors="replace") as lines, place.open("w") as kept:
                for line in lines:
                    kept.write(_without(secrets, redact_credentials(line)))
        except Exception as error:
            # What the job has done counts more than what it said.
            self.log.warning("The whole log of the job could not be kept under %s: %s", self.staging, error)
        else:
            self.log.info("The whole log of the job, with Spark's own, is kept at %s", address(place))

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


def check_engine(engine: Any) -> None:
    """Refuse, when a DAG is parsed, what is no engine, or would make a new version of the DAG at every parse."""
    if engine is None:
        return
    if isinstance(engine, type):
        raise TypeError(f"engine is the class {engine.__name__}, expected an engine: call it, {engine.__name__}()")
    if not isinstance(engine, Engine):
        raise TypeError(f"engine is {engine!r}, expected an engine such as LocalSpark()")
    if re.search(r"\bat 0x[0-9a-f]+", repr(engine)):
        raise TypeError(
            f"engine is {engine!r}, which is written differently at every parse of the DAG, so that Airflow would make "
            f"a new version of it each time. Give {type(engine).__name__} a __repr__ that names its settings (without "
            "secrets), or make it a dataclass"
        )


def _without(secrets: Sequence[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _resolved(value: Any, context: Context) -> Any:
    """The value of an XCom or of a mapped argument, None if it was never pushed; any other value as it is."""
    try:
        return value.resolve(context) if hasattr(value, "resolve") else value
    except XComNotFound:  # of a task that was killed, or did not run
        return None
