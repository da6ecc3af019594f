"""What is asked of AWS, and by whom, held against the policies that the documentation gives."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

from tests.support.spark_submit_runs import JOB_KEY

#: An action, and the ARN of what it is for.
Asked = tuple[str, str]
#: The access keys of the identity that tasks have, and of that which jobs have on a platform.
OF_TASKS, OF_JOBS = "testing", JOB_KEY
_SERVICE = re.compile(r"Credential=([^/]+)/\d+/[\w-]+/([\w-]+)/")
_OBJECT_ACTIONS = {
    "GET": "s3:GetObject",
    "HEAD": "s3:GetObject",
    "PUT": "s3:PutObject",
    "POST": "s3:PutObject",  # the beginning and the end of an upload in parts
    "DELETE": "s3:DeleteObject",
}


@contextmanager
def asked_of_aws() -> Iterator[dict[str, set[Asked]]]:
    """What is asked of S3 and Glue while the block runs, by the access key of who asks."""
    asked_by: dict[str, set[Asked]] = defaultdict(set)
    answer = DomainDispatcherApplication.__call__

    def recording(app: Any, environ: dict[str, Any], start_response: Any) -> Any:
        signed = _SERVICE.search(environ.get("HTTP_AUTHORIZATION", ""))
        key, service = signed.groups() if signed is not None else ("", "")
        asked = asked_by[key] if service in ("s3", "glue") else set()
        if service == "s3":
            path, query = unquote(environ["PATH_INFO"]), parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
            if "delete" in query:
                keys = re.findall(r"<Key>(.*?)</Key>", _read_body(environ).decode())
                asked.update(("s3:DeleteObject", f"arn:aws:s3:::{path.strip('/')}/{key}") for key in keys)
            else:
                asked.add(_of_s3(environ["REQUEST_METHOD"], path, query))
        elif service == "glue":
            asked.add(_of_glue(environ["HTTP_X_AMZ_TARGET"].rpartition(".")[2], json.loads(_read_body(environ))))
        return answer(app, environ, start_response)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DomainDispatcherApplication, "__call__", recording)
        yield asked_by


def policies_of(page: Path, names: dict[str, str]) -> list[list[dict[str, Any]]]:
    """The statements of each policy of a page.

    :param names: by name of a bucket or a database on the page, that of the test.
    """
    found = re.findall(r"^```json\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert found, page
    policies = [json.loads(text)["Statement"] for text in found]
    for there, here in names.items():
        policies = json.loads(json.dumps(policies).replace(there, here))
    return policies


def denied(asked: set[Asked], statements: list[dict[str, Any]]) -> list[Asked]:
    """What no statement allows of that which was asked."""

    def is_allowed(action: str, arn: str) -> bool:
        return any(
            action in _as_list(statement["Action"])
            and any(fnmatchcase(arn, pattern) for pattern in _as_list(statement["Resource"]))
            for statement in statements
        )

    return sorted(each for each in asked if not is_allowed(*each))


def _read_body(environ: dict[str, Any]) -> bytes:
    """The body of a request, which can be read again."""
    body: bytes = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = BytesIO(body)
    return body


def _of_s3(method: str, path: str, query: dict[str, list[str]]) -> Asked:
    bucket, _, key = path.strip("/").partition("/")
    if key:
        return _OBJECT_ACTIONS[method], f"arn:aws:s3:::{bucket}/{key}"
    assert method in ("GET", "HEAD"), (method, path, query)
    return "s3:GetBucketLocation" if "location" in query else "s3:ListBucket", f"arn:aws:s3:::{bucket}"


def _of_glue(operation: str, body: dict[str, Any]) -> Asked:
    database = body.get("DatabaseName") or body.get("DatabaseInput", body).get("Name")
    where = f"database/{database}" if database else "catalog"
    return f"glue:{operation}", f"arn:aws:glue:us-east-1:123456789012:{where}"


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
