"""Errors of the REST API of Databricks: the code that an answer has, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_to_delta.engines.engine import JobError

if TYPE_CHECKING:
    from airflow.providers.databricks.exceptions import DatabricksApiError

#: The codes of answers to a token that is wrong or has expired. Rights that lack are PERMISSION_DENIED.
_TOKEN_CODES = {"401", "403", "UNAUTHENTICATED"}
#: By code, what to do about answers that are as they are at the next try.
_ADVICE = {
    "INVALID_PARAMETER_VALUE": "Correct the arguments of the engine Databricks(…), which the message names",
    "RESOURCE_DOES_NOT_EXIST": "Correct the id in Databricks(…), or the package folder",
}


def api_error_code(error: DatabricksApiError) -> str | None:
    """The ``error_code`` of an answer, such as ``RESOURCE_DOES_NOT_EXIST``; None if the answer has none.

    :param error: as the hook raises it: from the error of ``requests``, which has the answer.
    """
    response = getattr(error.__cause__, "response", None)
    if response is None:
        return None
    try:
        answer = response.json()
    except ValueError:  # such as the HTML page of a proxy
        return None
    code = answer.get("error_code") if isinstance(answer, dict) else None
    return None if code is None else str(code)


def is_missing_run(error: DatabricksApiError) -> bool:
    """Whether the answer to a request about one run says that there is no such run."""
    # The id of the run is the only parameter, and of one that is unknown the Jobs API says that it is invalid.
    return api_error_code(error) in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def explain_api_error(error: DatabricksApiError, what: str) -> JobError:
    """Make the error of an engine from an answer of the API, with advice.

    :param what: what failed, as the beginning of the message.
    """
    status, code, text = error.http_status_code, api_error_code(error), str(error)
    if status == 401 or code in _TOKEN_CODES:
        return JobError(
            f"{what}: {text}. The token of the connection is wrong or has expired: renew it in the connection, or let "
            "the connection have a service principal with OAuth, whose tokens are renewed by themselves",
            retryable=True,
        )
    if status == 403:
        return JobError(
            f"{what}: {text}. Grant the identity of the connection what it lacks: CAN ATTACH TO or CAN RESTART on the "
            "cluster, CAN MANAGE RUN on the job, the right to create clusters, write access to the package folder; and "
            "CAN VIEW on a run that another identity has submitted",
            retryable=False,
        )
    if code in _ADVICE:
        return JobError(f"{what}: {text}. {_ADVICE[code]}", retryable=False)
    permanent = status is not None and 400 <= status < 500 and status not in (408, 409, 429)
    return JobError(f"{what}: {text}", retryable=not permanent)
