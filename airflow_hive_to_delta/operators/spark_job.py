"""The base of operators that run jobs on an engine."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, BaseOperatorLink, conf
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR
from airflow.sdk.exceptions import AirflowFailException, TaskDeferralError, TaskDeferralTimeout, XComNotFound

from airflow_hive_to_delta.engines import Engine, JobRequest, LocalSpark
from airflow_hive_to_delta.links import SparkJobLink
from airflow_hive_to_delta.operators.jobs.resumed import Deferral, ResumedJob
from airflow_hive_to_delta.operators.jobs.runner import JobRunner
from airflow_hive_to_delta.operators.staging import RunFolder, check_root
from airflow_hive_to_delta.triggers.spark_job import SparkJobTrigger

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial


class SparkJobOperator(BaseOperator):
    """Runs jobs on an engine. A job ends with the task, and its log is in the task's log.

    :param engine: where the job runs; an embedded Spark when not given.
    :param aws_conn_id: the AWS connection whose identity the job gets; None: what its process has anyway. (templated)
    :param region_name: the AWS region, when the connection names none. (templated)
    :param staging: the staging root for manifests and results, such as ``s3://bucket/staging``. (templated)
    :param staging_conn_id: the connection of the staging root; ``aws_conn_id`` for one on S3. Jobs read manifests with
        their own identity, whichever this is. (templated)
    :param deferrable: wait for jobs in the triggerer, without a worker. It needs an engine whose jobs go on without the
        worker, and a staging root. When not given, Airflow's ``[operators] default_deferrable`` counts, where these
        are there.
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
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_engine(engine)
        check_root(staging)
        self.engine: Engine = engine or LocalSpark()
        check_staging(self.engine, staging)
        self.deferrable = _choose_deferrable(deferrable, self.engine, staging)
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.staging = staging
        self.staging_conn_id = staging_conn_id
        self._runner: JobRunner | None = None
        self._killed = False
        self._deferral: Deferral | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        # A mapped task is made when it runs; its engine is in the serialized DAG long before.
        check_engine(kwargs.get("engine"))
        if kwargs.get("engine") is not None and "staging" in kwargs:  # which may be mapped
            check_staging(kwargs["engine"], kwargs["staging"])
        return super().partial(**kwargs)

    @property
    def job_page(self) -> str | None:
        """The address of a page about the task's latest job, where its engine has one."""
        return None if self._runner is None else self._runner.page

    def run_job(self, request: JobRequest, context: Context) -> dict[str, Any]:
        """The result of the job. Where there is a staging root, the whole of its log is kept with the run.

        A job that an earlier try has started, and that went on without it, is not started again.

        :raises JobError: the job has no result.
        """
        resumed = self.resume_job(context)
        if resumed is not None and resumed.result is not None and resumed.answers(request):
            return resumed.result
        runner = self._job_runner(context)
        return runner.run(request, aws_conn_id=self.aws_conn_id, region_name=self.region_name)

    def resume_job(self, context: Context) -> ResumedJob | None:
        """Wait for the end of a job that an earlier try has started, if there is one. It is found only once.

        :raises JobError: the task was killed.
        """
        return self._job_runner(context).resume()

    def execute_after_deferral(self, context: Context, event: dict[str, Any]) -> Any:
        """Begin anew when a job has ended that the task was deferred for. What its jobs have done is taken up."""
        self._deferral = Deferral(cursor=event["cursor"])
        return self.execute(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        if next_method != TRIGGER_FAIL_REPR:
            return super().resume_execution(next_method, next_kwargs, context)
        try:
            super().resume_execution(next_method, next_kwargs, context)
        except (TaskDeferralTimeout, TaskDeferralError) as error:
            # So that the job is ended, and the outcomes of the tables are recorded, as when the task itself fails.
            self._deferral = Deferral(error=error)
        return self.execute(context)

    def was_killed(self) -> bool:
        """Whether the task was killed: then no other job is begun."""
        return self._killed

    def on_kill(self) -> None:
        # Airflow goes on in execute() after this.
        self._killed = True
        if self._runner is not None:
            self._runner.kill()

    def _job_runner(self, context: Context) -> JobRunner:
        # Made when the task runs, not with the operator: Airflow runs a shallow copy of that.
        if self._runner is None:
            try:
                check_staging(self.engine, self.staging)  # a template is known by now
            except ValueError as error:
                raise AirflowFailException(str(error)) from error
            timeout = None if self.execution_timeout is None else self.execution_timeout.total_seconds()
            self._runner = JobRunner(
                self.engine,
                self.log,
                context,
                folder=self.run_folder(context),
                timeout=timeout,
                defer=partial(self._defer, context) if self.deferrable else None,
            )
            self._runner.killed = self._killed
            if self._deferral is not None:
                self._runner.go_on(self._deferral)
        return self._runner

    def _defer(self, context: Context, trigger: SparkJobTrigger) -> NoReturn:
        left = self.execution_timeout
        if left is not None:
            # Airflow does not apply the timeout of a task while it is deferred. A try may be deferred for several jobs,
            # one after the other, and begins once.
            instance: Any = context["ti"]
            left = max(left - (datetime.now(UTC) - instance.start_date), timedelta(0))
        self.defer(trigger=trigger, method_name="execute_after_deferral", timeout=left)

    def run_folder(self, context: Context) -> RunFolder | None:
        """This run's folder under the staging root, if there is one."""
        if self.staging is None:
            return None
        return RunFolder(self.staging, context, conn_id=self.staging_conn_id, aws_conn_id=self.aws_conn_id)

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
            return [_resolve_xcom(item, context) for item in content]
        return _resolve_xcom(content, context)


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


def _choose_deferrable(chosen: bool | None, engine: Engine, staging: str | None) -> bool:
    """Whether a task waits for its jobs in the triggerer."""
    able = engine.survives_worker and staging is not None
    if chosen and not able:
        ends = f"jobs of {type(engine).__name__} end with the worker"
        raise ValueError(
            f"deferrable is True, but {'staging is not given' if engine.survives_worker else ends}. A deferred task "
            "has no worker, and finds its job again by what is kept under the staging root. Take it out, or pass an "
            "engine whose jobs go on without the worker, and staging"
        )
    if chosen is None:
        chosen = able and conf.getboolean("operators", "default_deferrable", fallback=False)
    if chosen:
        engine.serialize()  # what the triggerer cannot make again is known when the DAG is parsed
    return chosen


def check_staging(engine: Engine, staging: str | None) -> None:
    """Refuse, when a DAG is parsed, a staging root that jobs of the engine cannot read. A template is checked later."""
    name = type(engine).__name__
    readable = ", ".join(f"{scheme}://" for scheme in sorted(engine.schemes))
    if staging is None:
        if engine.ships_package or "file" not in engine.schemes:
            raise ValueError(
                f"staging is not given, but jobs of {name} run elsewhere and read their request there. Pass a staging "
                f"root that they can read, one of {readable}"
            )
    elif "{{" not in staging and (scheme := staging.partition("://")[0]) not in engine.schemes:
        raise ValueError(
            f"staging is {staging!r}, but jobs of {name} cannot read their request from {scheme}://. Pass a staging "
            f"root that they can read, one of {readable}"
        )


def _resolve_xcom(value: Any, context: Context) -> Any:
    """The value of an XCom or of a mapped argument, None if it was never pushed; any other value as it is."""
    try:
        return value.resolve(context) if hasattr(value, "resolve") else value
    except XComNotFound:  # of a task that was killed, or did not run
        return None
