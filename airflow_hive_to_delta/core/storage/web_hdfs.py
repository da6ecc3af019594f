"""Files of HDFS over HTTP: WebHDFS, which every name node and data node speaks unless it was turned off.

A Python worker needs nothing for it but Python. A cluster with Kerberos asks for a ticket here, which workers do not
have: they cannot reach its files this way.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
    UnreachableStorageError,
)

_TIMEOUT_SECONDS = 20.0
#: Redirects that one request follows; a name node sends a reader on to one data node.
_MOST_REDIRECTS = 3
_DENIED = {"AccessControlException", "SecurityException"}
#: What a name node answers that is not the active one, and one that has just started.
_ELSEWHERE = {"StandbyException", "RetriableException", "SafeModeException"}
_HTTP, _HTTPS = "dfs.namenode.http-address", "dfs.namenode.https-address"


@dataclass(frozen=True)
class FileStatus:
    """What the name node knows of a file."""

    size: int
    #: Milliseconds since 1970.
    modification_time: int
    #: Another file under the same name has another one.
    file_id: int


@dataclass(frozen=True)
class WebHdfs:
    """The WebHDFS service of one HDFS.

    :param addresses: ``http://host:port`` of each name node; the active one is found by asking.
    :param user: who reads. HDFS without Kerberos believes any client.
    """

    addresses: tuple[str, ...]
    user: str
    _kept: _Connections = field(default_factory=lambda: _Connections(), compare=False, repr=False)

    def status(self, path: str) -> FileStatus:
        """Ask for the status of a file.

        :param path: the absolute path of the file, not escaped.
        :raises MissingError: there is no such file.
        :raises AccessDeniedError: the user may not read it.
        :raises UnreachableStorageError: what answers is no WebHDFS, or wants a ticket of Kerberos.
        :raises TransientError: trying again may help.
        """
        answer = self._get(path, "GETFILESTATUS")
        try:
            found = json.loads(answer)["FileStatus"]
            return FileStatus(int(found["length"]), int(found["modificationTime"]), int(found["fileId"]))
        except (ValueError, LookupError, TypeError) as error:
            raise UnreachableStorageError(f"What answers at {', '.join(self.addresses)} is no WebHDFS") from error

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Read a part of a file; raises what :meth:`status` raises."""
        if not length:
            return b""
        return self._get(path, "OPEN", offset=offset, length=length)

    def _get(self, path: str, operation: str, **parameters: object) -> bytes:
        query = urlencode({"op": operation, "user.name": self.user, **parameters})
        target = f"/webhdfs/v1{quote(path)}?{query}"
        failure: HiveToDeltaError | None = None
        for address in self.addresses:
            try:
                return self._follow(address + target, path)
            except (TransientError, UnreachableStorageError) as error:
                failure = error
        raise failure or UnreachableStorageError("No name node is known")

    def _follow(self, url: str, path: str) -> bytes:
        for _ in range(_MOST_REDIRECTS):
            status, location, content = self._kept.get(url)
            if status not in (301, 302, 303, 307, 308):
                break
            url = urljoin(url, location)
        if status == 200:
            return content
        raise _error(status, content, f"Reading {path} from WebHDFS at {urlsplit(url).netloc}")

    def __reduce__(self) -> tuple[Any, ...]:
        return WebHdfs, (self.addresses, self.user)


def name_node_addresses(authority: str, setting: Callable[[str], str | None]) -> tuple[str, ...]:
    """The HTTP addresses of the name nodes of an HDFS, as a client of Hadoop is configured.

    :param authority: what URIs of the HDFS have: ``host:port`` of a name node, or a name service.
    :param setting: gives the value of a setting, None for one that is not set.
    """
    secure = setting("dfs.http.policy") == "HTTPS_ONLY"
    scheme, name, port = ("https", _HTTPS, 9871) if secure else ("http", _HTTP, 9870)
    name_nodes = _split_list(setting(f"dfs.ha.namenodes.{authority}"))
    if name_nodes:
        found = [setting(f"{name}.{authority}.{name_node}") for name_node in name_nodes]
        return tuple(f"{scheme}://{address}" for address in found if address)
    host, _, its_port = (setting(name) or "").rpartition(":")
    if host in ("", "0.0.0.0"):  # noqa: S104 - the default, which is no address to connect to
        host = authority.rpartition(":")[0] or authority
    return (f"{scheme}://{host}:{its_port or port}",)


def _split_list(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _error(status: int, content: bytes, doing: str) -> HiveToDeltaError:
    """The error for an answer that is not the file. Only WebHDFS itself says why, as JSON."""
    try:
        remote = json.loads(content)["RemoteException"]
        name, message = str(remote["exception"]), str(remote["message"]).partition("\n")[0]
    except (ValueError, LookupError, TypeError):
        if status >= 500:
            return TransientError(f"{doing}: HTTP {status}")
        kerberos = ": it asks for a ticket of Kerberos" if status == 401 else ""
        return UnreachableStorageError(f"{doing}: HTTP {status}{kerberos}")
    text = f"{doing}: {name}: {message}"
    if name == "FileNotFoundException":
        return MissingError(text)
    if status == 401 or name == "AuthenticationException":
        return UnreachableStorageError(text)
    if name in _DENIED:
        return AccessDeniedError(f"{text}. Grant this identity access, or run with another one")
    if name in _ELSEWHERE or status >= 500:
        return TransientError(text)
    return PermanentError(text)


class _OpenConnections(dict[tuple[str, str], http.client.HTTPConnection]):
    """Connections by the scheme and the address of their servers, which are closed when nobody has them any more."""

    def __del__(self) -> None:
        for connection in self.values():
            connection.close()


class _Connections(threading.local):
    """Connections that a thread keeps open, one to each server."""

    def __init__(self) -> None:
        self._open = _OpenConnections()

    def get(self, url: str) -> tuple[int, str, bytes]:
        """The status, the header ``Location`` and the content of an answer."""
        parts = urlsplit(url)
        key = (parts.scheme, parts.netloc)
        kept = self._open.pop(key, None)
        if kept is not None:
            try:
                return self._ask(kept, key, url)
            except (OSError, http.client.HTTPException):
                kept.close()  # the server has closed it meanwhile
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=_TIMEOUT_SECONDS)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise TransientError(f"Nothing answers at {parts.netloc}: {error}") from error
        try:
            return self._ask(connection, key, url)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TransientError(f"{parts.netloc} broke off its answer: {error or type(error).__name__}") from error

    def _ask(self, connection: http.client.HTTPConnection, key: tuple[str, str], url: str) -> tuple[int, str, bytes]:
        parts = urlsplit(url)
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        content = answer.read()
        if answer.will_close or answer.status >= 400:
            connection.close()
        else:
            self._open[key] = connection
        return answer.status, answer.headers.get("Location", ""), content
