"""Jobs on Databricks: on a cluster that is there, on one made for the run, serverless, or by a job defined there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.engines.databricks_api.errors import explain_api_error, is_missing_run
from airflow_hive_to_delta.engines.databricks_api.files import home_folder, put_unless_there
from airflow_hive_to_delta.engines.engine import Engine, JobRef, JobSpec, JobState, JobStatus
from airflow_hive_to_delta.engines.package import package_zip, read_script
from airflow_hive_to_delta.engines.spark_settings import is_secret_name

if TYPE_CHECKING:
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

#: The name of the script that a run begins with. Jobs that are defined on Databricks name it, so it does not change:
#: what takes other arguments is called v2.
SCRIPT_NAME = "run_job_v1.py"

#: How far back a run is looked for whose submission got no answer, and how many runs a page of the list has.
_FIND_SECONDS = 7 * 24 * 3600
_RUNS_PER_PAGE = 25
#: Of the output of a run, how many of the last lines are shown.
_LAST_LINES = 40
#: The most that an error's text may have in the error of a task.
_LONGEST_ERROR = 2_000

_PENDING = {"PENDING", "QUEUED", "BLOCKED", "WAITING_FOR_RETRY"}
_ENDED = {"TERMINATED", "SKIPPED", "INTERNAL_ERROR"}
_CANCELLED = {"CANCELED", "UPSTREAM_CANCELED"}
_SUCCEEDED = {"SUCCESS", "SUCCESS_WITH_FAILURES"}
#: Why runs end that end in the same way the next time.
_PERMANENT_CODES = {
    "FEATURE_DISABLED",
    "INVALID_CLUSTER_REQUEST",
    "INVALID_RUN_CONFIGURATION",
    "LIBRARY_INSTALLATION_ERROR",
    "RESOURCE_NOT_FOUND",
    "STORAGE_ACCESS_ERROR",
    "UNAUTHORIZED_ERROR",
}


@dataclass
class Databricks(Engine):
    """Runs each job as a run on Databricks, through a connection of the Databricks provider.

    Exactly one of ``existing_cluster_id``, ``new_cluster``, ``serverless`` and ``job_id`` says where. The package is
    uploaded as a zip named by its content, once, and nothing needs to be installed on the compute.

    :param conn_id: the Databricks connection. Its identity submits the runs, and unless ``run_settings`` or the job say
        otherwise, the runs have it too.
    :param existing_cluster_id: the id of a cluster that is there, and is started if it is not running.
    :param new_cluster: a cluster that is made for the run and ends with it, as the Jobs API takes it:
        ``{"spark_version": …, "node_type_id": …, "num_workers": …}``. Secrets are written into it as Databricks refers
        to them, ``{{secrets/scope/key}}``.
    :param serverless: run on serverless compute.
    :param environment_version: of serverless compute.
    :param job_id: the id of a job that is defined on Databricks. It has one task, a Python script, which is
        ``run_job_v1.py`` in ``package_folder``. Databricks applies the own time limit of the job, and not that of the
        Airflow task; a task that is timed out still ends its run.
    :param package_folder: where the zip and the script are kept: a folder of the workspace
        (``/Workspace/Shared/airflow``) or of a volume (``/Volumes/main/default/airflow``) that the runs can read and
        only those can write to whom you trust. When not given, a folder in the home of the connection's identity.
    :param run_settings: more of what ``runs/submit`` takes, such as ``access_control_list``, ``run_as``, ``queue`` or
        ``budget_policy_id``.
    :param libraries: what is to be installed from PyPI for the runs, such as ``["boto3>=1.36"]``, where the runtime has
        none or an older one.
    :param poll_seconds: how often a run is asked for.
    """

    survives_worker = True
    schemes = frozenset({"s3", "s3a", "gs"})

    conn_id: str = "databricks_default"
    existing_cluster_id: str | None = None
    new_cluster: dict[str, Any] | None = field(default=None, repr=False)
    serverless: bool = False
    environment_version: str = "4"
    job_id: int | None = None
    package_folder: str | None = None
    run_settings: dict[str, Any] = field(default_factory=dict, repr=False)
    libraries: list[str] = field(default_factory=list)
    poll_seconds: float = 10.0
    poll_errors: int = 5
    #: The connection, and the OAuth tokens that it has been given, as of the latest answer of the API.
    _access: tuple[Any, dict[str, Any]] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        chosen = {
            "existing_cluster_id": self.existing_cluster_id is not None,
            "new_cluster": self.new_cluster is not None,
            "serverless": self.serverless,
            "job_id": self.job_id is not None,
        }
        given = [name for name, is_given in chosen.items() if is_given]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) if given else 'Nothing'} says where runs go, expected exactly one of "
                f"{', '.join(chosen)}"
            )
        if self.job_id is not None and (type(self.job_id) is not int or self.job_id < 1):
            raise ValueError(f"job_id is {self.job_id!r}, expected the number of a job, such as 620171523411")
        if self.job_id is not None and (self.run_settings or self.libraries):
            raise ValueError(
                "run_settings and libraries are of runs that are submitted; a job that is defined has its own"
            )
        if not isinstance(self.libraries, list):
            raise TypeError(f"libraries is {self.libraries!r}, expected a list of requirements")
        if self.job_id is not None and self.package_folder is None:
            raise ValueError(
                f"job_id is given without package_folder: the job's task runs {SCRIPT_NAME} in a folder, which has to "
                "be named here too"
            )
        if self.package_folder is not None:
            self.package_folder = self.package_folder.rstrip("/")
            if not self.package_folder.startswith(("/Workspace/", "/Volumes/")):
                raise ValueError(
                    f"package_folder is {self.package_folder!r}, expected a path that begins with /Workspace/ or "
                    "/Volumes/"
                )
        _refuse_secrets("new_cluster", self.new_cluster)
        _refuse_secrets("run_settings", self.run_settings)

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:  # noqa: ARG002
        hook = self._hook(attempts=3)
        from airflow.providers.databricks.exceptions import DatabricksApiError

        try:
            script, package = self._put_files(hook)
        except DatabricksApiError as error:
            raise explain_api_error(
                error, f"The package could not be uploaded to {self.package_folder or 'Databricks'}"
            ) from error
        try:
            # Asked again with the same token after a lost answer, Databricks gives the run that it has begun.
            if self.job_id is None:
                run = hook.submit_run(self._run_of(spec, script, package))
            else:
                asked = {"job_id": self.job_id, "idempotency_token": spec.token}
                run = hook.run_now({**asked, "python_params": _script_arguments(spec, package)})
        except DatabricksApiError as error:
            raise explain_api_error(error, f"{spec.name} was not started on Databricks") from error
        self._keep_access(hook)
        page = None
        with suppress(Exception):  # the run counts more than its page
            page = self._hook().get_run_page_url(run)
        return JobRef(str(run), spec.results_uri, page)

    def find(self, token: str) -> JobRef | None:
        # Submitting once more with the same token would give the run, too, but begin one if there is none. So it is
        # looked for in the list: the token is the key of a run's task, and part of the address of its results.
        for run in self._list_runs():
            keys = {task.get("task_key") for task in run.get("tasks", ())}
            parameters = _parameters(run)
            if token in keys or any(token in parameter for parameter in parameters):
                results = parameters[parameters.index("--results") + 1] if "--results" in parameters else ""
                return JobRef(str(run["run_id"]), results, run.get("run_page_url"))
        return None

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:  # noqa: ARG002
        from airflow.providers.databricks.exceptions import DatabricksApiError

        hook = self._hook()
        try:
            run = hook.get_run(int(ref.id))
        except DatabricksApiError as error:
            if is_missing_run(error):
                return JobStatus("not_found")
            raise explain_api_error(error, f"Databricks does not say how far run {ref.id} is") from error
        self._keep_access(hook)
        output: dict[str, Any] = {}
        if (task := _ended_task(run)) is not None:
            with suppress(Exception):  # that the run has ended counts more than what it said
                output = hook.get_run_output(task)
        return _status_of(run, output)

    async def astatus(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        from airflow.providers.databricks.exceptions import DatabricksApiError

        async with self._hook() as hook:
            try:
                run = await hook.a_get_run(int(ref.id))
            except DatabricksApiError:
                # Without its answer, in which Databricks says whether it knows the run.
                return await asyncio.to_thread(self.status, ref, cursor)
            output: dict[str, Any] = {}
            if (task := _ended_task(run)) is not None:
                with suppress(Exception):
                    output = await hook.a_get_run_output(task)
        return _status_of(run, output)

    def cancel(self, ref: JobRef, within: float) -> None:
        from airflow.providers.databricks.exceptions import DatabricksApiError

        # A time to connect, and one to answer.
        hook = self._hook(timeout=within / 2)
        if self._access is not None:
            # Nothing is looked up: the signal that kills a task may come in the middle of another question to Airflow,
            # which takes one at a time.
            hook.databricks_conn, hook.oauth_tokens = self._access
        try:
            hook.cancel_run(int(ref.id))
        except DatabricksApiError as error:
            if not is_missing_run(error):
                raise explain_api_error(error, f"Databricks does not end run {ref.id}") from error

    def _hook(self, *, attempts: int = 1, timeout: float = 30.0) -> DatabricksHook:
        """Make a hook that tries each request so many times: a poll once, because the caller counts those that fail."""
        with needs_extra("databricks", "The engine Databricks"):
            from airflow.providers.databricks.hooks.databricks import DatabricksHook
            from tenacity import stop_after_attempt, wait_exponential

        # As soon as a poll, for the first time, and then later and later.
        wait = wait_exponential(multiplier=min(self.poll_seconds / 10, 1.0), max=8)
        retries = {"stop": stop_after_attempt(attempts), "wait": wait}
        hook = DatabricksHook(
            self.conn_id,
            timeout_seconds=max(int(timeout), 1),
            retry_limit=attempts,
            retry_args=retries,
            caller=type(self).__name__,
        )
        hook.token_timeout_seconds = min(hook.token_timeout_seconds, hook.timeout_seconds)
        return hook

    def _keep_access(self, hook: DatabricksHook) -> None:
        """Keep the identity that the API has just let in, to cancel a run with it."""
        self._access = hook.databricks_conn, hook.oauth_tokens

    def _put_files(self, hook: DatabricksHook) -> tuple[str, str]:
        """The paths of the script and of the zip, which are uploaded unless they are there."""
        folder = self.package_folder or home_folder(hook)
        package = package_zip()
        put_unless_there(hook, f"{folder}/{package.name}", package.content)
        put_unless_there(hook, f"{folder}/{SCRIPT_NAME}", read_script(SCRIPT_NAME))
        return f"{folder}/{SCRIPT_NAME}", f"{folder}/{package.name}"

    def _run_of(self, spec: JobSpec, script: str, package: str) -> dict[str, Any]:
        """The body of a request to ``runs/submit``."""
        task: dict[str, Any] = {
            "task_key": spec.token,
            "spark_python_task": {"python_file": script, "parameters": _script_arguments(spec, package)},
        }
        run: dict[str, Any] = {
            **self.run_settings,
            "run_name": spec.name,
            "idempotency_token": spec.token,
            "tasks": [task],
        }
        if spec.timeout is not None:
            run["timeout_seconds"] = max(int(spec.timeout), 1)
        if self.serverless:
            environment: dict[str, Any] = {"environment_version": self.environment_version}
            if self.libraries:
                environment["dependencies"] = self.libraries
            task["environment_key"] = "default"
            run["environments"] = [{"environment_key": "default", "spec": environment}]
            return run
        if self.existing_cluster_id is not None:
            task["existing_cluster_id"] = self.existing_cluster_id
        else:
            task["new_cluster"] = self.new_cluster
        if self.libraries:
            task["libraries"] = [{"pypi": {"package": package}} for package in self.libraries]
        return run

    def _list_runs(self) -> Iterator[dict[str, Any]]:
        hook = self._hook(attempts=3)
        from airflow.providers.databricks.exceptions import DatabricksApiError

        asked: dict[str, Any] = {
            "limit": _RUNS_PER_PAGE,
            "start_time_from": int((time.time() - _FIND_SECONDS) * 1000),
            **({"run_type": "SUBMIT_RUN", "expand_tasks": "true"} if self.job_id is None else {"job_id": self.job_id}),
        }
        while True:
            try:
                answer = hook._do_api_call(("GET", "2.2/jobs/runs/list"), asked)
            except DatabricksApiError as error:
                raise explain_api_error(error, "Databricks does not say which runs there are") from error
            yield from answer.get("runs", ())
            if not (page := answer.get("next_page_token")):
                return
            asked["page_token"] = page


def _script_arguments(spec: JobSpec, package: str) -> list[str]:
    # The session is that of the cluster: if the job stopped it, its other users would lose it.
    return [package, *spec.arguments, "--keep-session"]


def _parameters(run: Mapping[str, Any]) -> list[str]:
    """The arguments of a run's script."""
    overriding: list[str] = run.get("overriding_parameters", {}).get("python_params", [])
    return overriding or [
        parameter
        for task in run.get("tasks", ())
        for parameter in task.get("spark_python_task", {}).get("parameters", ())
    ]


def _ended_task(run: Mapping[str, Any]) -> int | None:
    """The id of the last task run of a run that has ended, which has the output; None while the run goes on."""
    if run.get("state", {}).get("life_cycle_state") not in _ENDED:
        return None
    attempts = sorted(run.get("tasks", ()), key=lambda task: task.get("attempt_number", 0))
    return attempts[-1]["run_id"] if attempts else None


def _status_of(run: Mapping[str, Any], output: Mapping[str, Any]) -> JobStatus:
    """The status of a run, from what the API says of it and of its output."""
    state = run.get("state", {})
    life = state.get("life_cycle_state", "")
    if life not in _ENDED:
        return JobStatus("pending" if life in _PENDING else "running")
    result = state.get("result_state", "")
    lines = [line for text in (output.get("logs"), output.get("error_trace")) for line in (text or "").splitlines()]
    log = lines[-_LAST_LINES:]
    if life == "TERMINATED" and result in _SUCCEEDED:
        return JobStatus("succeeded", log=log)
    details = run.get("status", {}).get("termination_details", {})
    messages = [state.get("state_message"), output.get("error"), details.get("message")]
    text = ". ".join(dict.fromkeys(part.strip().rstrip(".") for part in messages if part))[:_LONGEST_ERROR]
    how: JobState = "cancelled" if result in _CANCELLED else "failed"
    ended = "was cancelled" if how == "cancelled" else f"ended as {result or life}"
    error = f"The run on Databricks {ended}" + (f": {text}" if text else "")
    if life == "SKIPPED" or result == "MAXIMUM_CONCURRENT_RUNS_REACHED":
        error += ". Let the job have more concurrent runs, or queue them (its setting queue)"
    return JobStatus(how, error, retryable=details.get("code") not in _PERMANENT_CODES, log=log)


def _refuse_secrets(name: str, settings: Any) -> None:
    """Refuse what looks like a secret in plain text: an engine is kept in Airflow's database."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            if isinstance(value, str) and is_secret_name(str(key)) and "{{secrets/" not in value:
                raise ValueError(
                    f"{name} has a value for {key!r} that may be secret, in plain text. Keep it in a secret scope of "
                    "Databricks and write {{secrets/scope/key}} in its place"
                )
            _refuse_secrets(name, value)
    elif isinstance(settings, (list, tuple)):
        for each in settings:
            _refuse_secrets(name, each)
