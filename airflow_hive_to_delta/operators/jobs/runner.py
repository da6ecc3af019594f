"""Running jobs on an engine for a task, which shows their logs and ends them when it is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout, TaskDeferralTimeout, TaskDeferred

from airflow_hive_to_delta.core.errors import MissingDependencyError, name_error
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines import Engine, JobError, JobRef, JobRequest, JobSpec, JobStatus
from airflow_hive_to_delta.engines.watch import CANCEL_SECONDS, JobWatch, describe_failure, warn_of_failure
from airflow_hive_to_delta.job.table_results import job_folder_name
from airflow_hive_to_delta.links import SparkJobLink
from airflow_hive_to_delta.operators.aws.identity import job_environment
from airflow_hive_to_delta.operators.jobs.folder import JobFolder, job_folder, ship_package
from airflow_hive_to_delta.operators.jobs.logs import JobLogs
from airflow_hive_to_delta.operators.jobs.messages import describe_missing_result
from airflow_hive_to_delta.operators.jobs.resumed import Deferral, ResumedJob, is_for_same_tables
from airflow_hive_to_delta.operators.jobs.submitted import SubmittedJob, SubmittedJobStore, generation, job_token
from airflow_hive_to_delta.operators.staging import RunFolder
from airflow_hive_to_delta.operators.tables.outcomes import airflow_error, has_tries_left
from airflow_hive_to_delta.triggers.job_progress import JobProgress, count_tables
from airflow_hive_to_delta.triggers.spark_job import SparkJobTrigger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import Context

#: Of a job that was begun in this try, before the task was deferred.
_UNSEEN = {"error": "The end of the job was not seen, for the task was interrupted", "retryable": True}
_KILLED = "The task was killed, and its job was ended with it"
#: The longest that a killed task goes on waiting for the next poll.
_NAP_SECONDS = 0.5
#: So long after the end of its time a task waits for Airflow to raise the timeout.
_TIMEOUT_PATIENCE = 5

Answer = TypeVar("Answer")


class JobRunner:
    """Runs jobs on an engine, one at a time, for one task.

    :param engine: where the jobs run.
    :param log: the logger of the task.
    :param context: of the try of the task.
    :param folder: the run's folder under the staging root, where jobs have their folders and their whole logs are kept;
        None: there is no staging root.
    :param timeout: the seconds after which the task ends, and its job with it; None: it has no such limit.
    :param defer: defers the task until a trigger fires. The task then begins anew, and what its jobs have done until
        then is taken up. None: the task waits for its jobs.
    """

    def __init__(
        self,
        engine: Engine,
        log: Any,
        context: Context,
        *,
        folder: RunFolder | None,
        timeout: float | None,
        defer: Callable[[SparkJobTrigger], NoReturn] | None = None,
    ) -> None:
        self._engine = engine
        self._log = log
        self._context = context
        self._folder = folder
        self._timeout = timeout
        self._ends = None if timeout is None else time.monotonic() + timeout
        self._defer = defer
        self._deferral: Deferral | None = None
        # Without a staging root a job has its folder on this machine, and ends with the task.
        self._survives = engine.survives_worker and folder is not None
        self._store = SubmittedJobStore(context, folder) if self._survives and folder is not None else None
        self._ref: JobRef | None = None
        self._jobs = 0
        self._logs = None if folder is None else JobLogs(folder, log)
        #: Whether the task was killed: a job that runs is ended, and later ones are ended as they begin.
        self.killed = False
        #: The address of a page about the latest job, where the engine has one.
        self.page: str | None = None

    def run(self, request: JobRequest, *, aws_conn_id: str | None, region_name: str | None) -> dict[str, Any]:
        """Run a job to its end and return its result.

        :param aws_conn_id: the AWS connection whose identity the job gets; None: what its process has anyway.
        :raises JobError: the job has no result: it failed, or the task was killed.
        :raises AirflowException: the engine does not say how far the job is, and why is known. The job may still run:
            no other one is to be started for it.
        """
        instance: Any = self._context["ti"]
        if self._deferral is not None and (result := self._replay(request)) is not None:
            return result
        self._jobs += 1
        token, name = self._name_job(self._jobs)
        here = self._engine.runs_on_this_machine
        with (
            job_folder(self._folder, name) as documents,
            job_environment(aws_conn_id, region_name, on_this_machine=here) as environment,
        ):
            package_uri, main_uri = self._stage(request, documents)
            spec = JobSpec(
                request.name, documents.request_uri, documents.uri, token, package_uri, main_uri, self._timeout
            )
            job = SubmittedJob(generation(self._context), instance.try_number, name, token)
            try:
                ref = self._submit(spec, job, environment)
            except JobError as error:
                self._keep_end(documents, str(error), retryable=error.retryable)
                raise
            return _result_or_error(self._finish(ref, request, documents, environment))

    def resume(self) -> ResumedJob | None:
        """Find the job again that an earlier try has not seen the end of, if there is one, and wait for its end.

        A task that was cleared begins anew: a job of before is ended.

        :raises JobError: the task was killed.
        :raises AirflowException: as :meth:`run` does.
        """
        instance: Any = self._context["ti"]
        job = None if self._store is None else self._store.read()
        if self._store is None or self._folder is None or job is None or job.try_number >= instance.try_number:
            return None
        ref = self._find(job)
        if ref is None:
            self._store.clear()
            return None
        if job.generation != generation(self._context):
            self._log.info("Ending the job %s, from before the task was cleared", ref.id)
            self._cancel(ref)
            self._store.clear()
            return None
        self._log.info("Found the job %s of try %d again", ref.id, job.try_number)
        documents = JobFolder(self._folder.jobs / job.folder)
        request = documents.read_request()
        result = self._finish(ref, request, documents, {}, self._deferral)
        try:
            return ResumedJob(request, job.try_number, _result_or_error(result))
        except JobError as error:
            self._log.warning("The job %s of try %d has no result: %s", ref.id, job.try_number, error)
            return ResumedJob(request, job.try_number, None)

    def go_on(self, deferral: Deferral) -> None:
        """Prepare to run the task from its beginning, after a deferral in this try. Call it before the first job."""
        self._deferral = deferral

    def _replay(self, request: JobRequest) -> dict[str, Any] | None:
        """What a job of this try gave for a request: it has ended, or the task was deferred until it would.

        :returns: None when there was no such job.
        :raises JobError: there was, and it had no result.
        """
        if self._folder is None or self._store is None:
            return None
        waiting = self._store.read()
        while True:
            token, name = self._name_job(self._jobs + 1)
            documents = JobFolder(self._folder.jobs / name)
            is_waiting = waiting is not None and waiting.token == token
            ref = self._find(waiting) if waiting is not None and is_waiting else None
            if not documents.has_request() or (is_waiting and ref is None):  # the latter was never started
                return None
            self._jobs += 1
            if not is_for_same_tables(documents.read_request(), request):
                if ref is not None:
                    self._cancel(ref)
            elif ref is not None:
                return _result_or_error(self._finish(ref, request, documents, {}, self._deferral))
            else:
                return _result_or_error(documents.read_end() or _UNSEEN)

    def _name_job(self, number: int) -> tuple[str, str]:
        """The token and the name of the folder of a job of this try."""
        instance: Any = self._context["ti"]
        token = job_token(self._context, number)
        return token, job_folder_name(instance.try_number, number, token)

    def kill(self) -> None:
        """End the job that runs, if there is one. :meth:`run` then raises ``JobError``."""
        self.killed = True
        if self._ref is not None:
            self._log.info("The task is being killed: ending its job %s", self._ref.id)
            self._cancel(self._ref)

    def _stage(self, request: JobRequest, documents: JobFolder) -> tuple[str, str] | tuple[None, None]:
        """Write what a job reads. Returns the addresses of the package's zip and of its script, as they are shipped."""
        if self._folder is None:
            documents.write_request(request)
            return None, None
        with self._folder.explaining_errors("No job was started"):
            documents.write_request(request)
            return ship_package(self._engine, self._folder)

    def _submit(self, spec: JobSpec, job: SubmittedJob, environment: Mapping[str, str]) -> JobRef:
        if self._store is not None:
            self._store.write(job)  # before the job is there: its answer may be lost, with this process too
        try:
            ref = self._engine.submit(spec, environment)
        except (JobError, MissingDependencyError) as error:
            if self._store is not None:
                self._store.clear()
            if isinstance(error, MissingDependencyError):  # an extra of this package that the engine needs
                raise JobError(str(error), retryable=False) from error
            raise
        except Exception as error:
            found = self._find_lost(spec.token, error)
            if found is None:
                raise
            self._log.warning(
                "The answer of the engine was lost, but it has the job %s: %s", found.id, describe_failure(error)
            )
            ref = found
        self._log.info("Started %s as job %s on %s", spec.name, ref.id, type(self._engine).__name__)
        if self._store is not None:
            with self._cancelling(ref):
                self._store.write(replace(job, ref=ref.to_dict()))
        return ref

    def _find_lost(self, token: str, failure: Exception) -> JobRef | None:
        """The job whose submission got no answer. None, also while the engine gives none: the next try asks again.

        :param failure: of the submission.
        :raises AirflowException: the engine says why it gives none, which is most often why the submission failed.
        """
        try:
            return self._engine.find(token)
        except JobError as error:
            text = f"{error}. The submission had failed: {describe_failure(failure)}"
            raise airflow_error(JobError(text, retryable=error.retryable)) from failure
        except Exception as error:
            self._log.warning("The engine cannot be asked whether it has the job: %s", describe_failure(error))
            return None

    def _find(self, job: SubmittedJob) -> JobRef | None:
        if job.ref is not None:
            return JobRef.from_dict(job.ref)
        return self._ask(lambda: self._engine.find(job.token))

    def _finish(
        self,
        ref: JobRef,
        request: JobRequest,
        documents: JobFolder,
        environment: Mapping[str, str],
        deferral: Deferral | None = None,
    ) -> dict[str, Any]:
        """Wait for the end of a job, and return its result, which has ``error`` if the job failed or left none.

        :param deferral: of this task, if it was deferred until the job would end.
        """
        # One that was found by its token may lack the address: not every platform keeps it.
        self._ref = ref = replace(ref, results_uri=documents.uri)
        try:
            with self._cancelling(ref):
                self._push_link(ref)
                status = self._follow(ref, request, documents, deferral)
                if status is not None and status.whole_log is not None and self._logs is not None:
                    self._logs.keep(status.whole_log, environment)
                result = None if status is None else self._ask(documents.read_result)
        except Exception as error:
            if self.killed:
                raise JobError(_KILLED, retryable=True) from error
            raise
        finally:
            self._ref = None
        if self._store is not None:
            self._store.clear()
        if self.killed or status is None:
            raise JobError(_KILLED, retryable=True)
        if result is None:
            result = {"error": describe_missing_result(status, documents), "retryable": status.retryable}
            self._keep_end(documents, result["error"], retryable=status.retryable)
        return result

    @contextmanager
    def _cancelling(self, ref: JobRef) -> Iterator[None]:
        """End the job with the block, unless it goes on for a later try to find.

        A timeout ends it, too, and so does an error that no retry can help, or that comes in the last try.
        """
        keep = False
        try:
            yield
            keep = self._survives and not self.killed
        except TaskDeferred:
            keep = True
            raise
        except Exception as error:
            lost = self.killed or isinstance(error, (TaskDeferralTimeout, AirflowFailException))
            keep = self._survives and not lost and has_tries_left(self._context)
            if keep:
                self._log.info("The job %s goes on, and the next try finds it again", ref.id)
            raise
        finally:
            if not keep:
                self._cancel(ref)

    def _cancel(self, ref: JobRef) -> None:
        try:
            self._engine.cancel(ref, CANCEL_SECONDS)
        except Exception as error:
            self._log.warning("The job %s could not be ended, and may still run: %s", ref.id, describe_failure(error))

    def _push_link(self, ref: JobRef) -> None:
        """Show the link while the task runs. Airflow would compute it when the task has ended."""
        self.page = ref.page
        if ref.page is not None:
            instance: Any = self._context["ti"]
            instance.xcom_push(SparkJobLink().xcom_key, ref.page)

    def _keep_end(self, documents: JobFolder, error: str, *, retryable: bool) -> None:
        """Keep why a job has no result, for this try when it was deferred for another job and begins anew."""
        if self._defer is not None:
            documents.write_end(redact_credentials(error), retryable=retryable)

    def _follow(
        self, ref: JobRef, request: JobRequest, documents: JobFolder, deferral: Deferral | None
    ) -> JobStatus | None:
        """Write the job's log into the task's until the job has ended. Returns None when the task was killed.

        A task that is to be deferred is so here, while the job runs.

        :param deferral: of this task, if it was deferred until the job would end.
        :raises Exception: the error of the deferral, if it has one.
        """
        if deferral is not None and deferral.error is not None:
            raise deferral.error
        progress = JobProgress(request.name, documents.uri, documents.conn_id, count_tables(request))
        watch = JobWatch(self._engine, self._log, progress.describe, None if deferral is None else deferral.cursor)
        while not self.killed:
            status = self._ask(partial(self._engine.status, ref, watch.cursor))
            has_ended = watch.record(status)
            if has_ended or (deferral is not None and status.has_ended):  # the trigger has waited for a late platform
                return status
            if self._defer is not None:
                trigger = SparkJobTrigger(
                    list(self._engine.serialize()),
                    ref.to_dict(),
                    request.name,
                    watch.cursor,
                    progress.conn_id,
                    progress.table_count,
                )
                self._log.info("Waiting for the job %s without a worker", ref.id)
                self._defer(trigger)
            self._sleep(partial(watch.log_progress, status))
        return None

    def _ask(self, ask: Callable[[], Answer]) -> Answer:
        """Ask the engine or the storage. A few failures in a row say nothing about the job.

        :raises AirflowException: in place of the ``JobError`` of an engine that cannot be asked. A job whose end is not
            known has not failed, as one has by a ``JobError``.
        """
        failures = 0
        while True:
            try:
                return ask()
            except Exception as error:
                failures += 1
                if failures > self._engine.poll_errors or self.killed:
                    if isinstance(error, JobError):
                        raise airflow_error(error) from error
                    raise
                warn_of_failure(self._log, self._engine, failures, error)
            self._sleep()

    def _sleep(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until the next poll, or until the task is killed.

        :param meanwhile: is called again and again until then.
        """
        until = time.monotonic() + self._engine.poll_seconds
        while not self.killed and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _NAP_SECONDS))
            self._check_time()
            if meanwhile is not None:
                meanwhile()

    def _check_time(self) -> None:
        """Raise the timeout that Airflow should have raised by now.

        Airflow raises it in a signal handler, wherever the task is at that moment, and there are places where Python
        drops it: in what is called when an object is collected, such as a pool of connections.
        """
        if self._ends is not None and time.monotonic() > self._ends + _TIMEOUT_PATIENCE:
            raise AirflowTaskTimeout(f"The task has taken longer than its execution_timeout of {self._timeout:g} s")


def _result_or_error(result: dict[str, Any]) -> dict[str, Any]:
    if "error" in result:
        text = name_error(result["error"], result.get("error_kind"))
        raise JobError(redact_credentials(text), retryable=bool(result["retryable"]))
    return result
