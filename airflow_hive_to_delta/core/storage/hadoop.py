"""The storage of a log on the Hadoop file systems of a Spark session. Only this module of the core reaches for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.storage.base import StoredFile, buffered_stream, copy_to, delete_each
from airflow_hive_to_delta.core.storage.uri import Location
from airflow_hive_to_delta.core.storage.web_hdfs import WebHdfs, name_node_addresses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CREATE_IS_CONDITIONAL = {"gs", "dbfs"}


class HadoopStorage:
    """The file systems of the session's JVM: HDFS, ViewFs, ABFS, WASB, GCS and DBFS.

    Put-if-absent works as in Delta's own log stores. An exclusive ``create`` would show readers half a file, so a file
    is written under a temporary name and renamed. ``FileContext.rename`` without ``OVERWRITE`` fails on an existing
    target, in the name node on HDFS and by a conditional request on ABFS. On Google's storage a rename is a copy, but
    an exclusive ``create`` is conditional there, and its object appears when it is closed. DBFS promises neither; it is
    written to as Google's storage is, and only reading the entry back (rule 5) shows whether another writer won.

    :param spark: a session with a JVM, which Spark Connect and Databricks serverless do not have.
    """

    def __init__(self, spark: SparkSession | None) -> None:
        jvm = getattr(spark, "_jvm", None)
        if spark is None or jvm is None:
            raise PermanentError(
                "This location needs a Hadoop file system, and the Spark session gives no access to its JVM (Spark "
                "Connect and Databricks serverless have none). Run the conversion as a job on the cluster itself, or "
                "give the table a location on S3"
            )
        self._jvm: Any = jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        target = self._path(path)
        try:
            with _jvm_call(f"Writing {path}"):
                if path.scheme in _CREATE_IS_CONDITIONAL:
                    self._create(target, source)
                else:
                    self._create_and_rename(target, source)
        except _AlreadyThereError:
            return False
        return True

    def open(self, path: Location) -> BinaryIO:
        doing = f"Reading {path}"
        target = self._path(path)
        with _jvm_call(doing):
            opened = target.getFileSystem(self._conf).open(target)

        def read(count: int) -> bytes:
            with _jvm_call(doing):
                return bytes(opened.readNBytes(count))

        return buffered_stream(read, opened.close)

    def size(self, path: Location) -> int:
        target = self._path(path)
        with _jvm_call(f"Looking for {path}"):
            return int(target.getFileSystem(self._conf).getFileStatus(target).getLen())

    def list_names(self, folder: Location) -> list[str]:
        target = self._path(folder)
        try:
            with _jvm_call(f"Listing {folder}"):
                found = target.getFileSystem(self._conf).listStatus(target)
                return [f"{s.getPath().getName()}{'/' if s.isDirectory() else ''}" for s in found]
        except MissingError:
            return []

    def list_files(self, folder: Location) -> list[StoredFile]:
        target = self._path(folder)
        try:
            with _jvm_call(f"Listing {folder}"):
                found = target.getFileSystem(self._conf).listStatus(target)
                return [
                    StoredFile(str(s.getPath().getName()), int(s.getLen()), int(s.getModificationTime()))
                    for s in found
                    if not s.isDirectory()
                ]
        except MissingError:
            return []

    def delete(self, path: Location) -> None:
        target = self._path(path)
        with _jvm_call(f"Deleting {path}"):
            files = target.getFileSystem(self._conf)
            if not files.delete(target, False) and files.exists(target):
                raise TransientError(f"Deleting {path}: the file system did not delete it. Try again")

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        return delete_each(self, paths)

    def remove_folder(self, folder: Location) -> None:
        target = self._path(folder)
        with suppress(MissingError), _jvm_call(f"Deleting the empty folder {folder}"):
            files = target.getFileSystem(self._conf)
            if not len(files.listStatus(target)):
                files.delete(target, False)

    def move(self, source: Location, target: Location) -> None:
        there, here = self._path(source), self._path(target)
        with _jvm_call(f"Moving {source} to {target}"):
            files = there.getFileSystem(self._conf)
            files.mkdirs(here.getParent())
            if not files.rename(there, here):
                if files.exists(there):
                    raise TransientError(f"Moving {source} to {target}: the file system did not move it. Try again")
                files.getFileStatus(here)  # an earlier call moved it

    def _path(self, path: Location) -> Any:
        # Not as one string: that would be parsed, and a name can look like a URI.
        return self._jvm.org.apache.hadoop.fs.Path(path.scheme, path.authority or None, path.path or "/")

    def _create(self, target: Any, source: BinaryIO) -> None:
        # Not closed when writing fails: closing is what would publish the half that was written.
        stream = target.getFileSystem(self._conf).create(target, False)
        copy_to(source, stream.write)
        stream.close()

    def _create_and_rename(self, target: Any, source: BinaryIO) -> None:
        hadoop = self._jvm.org.apache.hadoop.fs
        files = target.getFileSystem(self._conf)
        target = files.makeQualified(target)  # a context of files takes no URI without an authority, as in hdfs:///t
        folder = target.getParent()
        temporary = hadoop.Path(folder, f".{target.getName()}.{uuid.uuid4().hex}.tmp")
        made = not files.exists(folder)
        files.mkdirs(folder)
        try:
            stream = files.create(temporary, False)
            try:
                copy_to(source, stream.write)
            finally:
                stream.close()
            no_options = self._jvm.java.lang.reflect.Array.newInstance(
                self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 0
            )
            hadoop.FileContext.getFileContext(target.toUri(), self._conf).rename(temporary, target, no_options)
        finally:
            files.delete(temporary, False)
            if made and not len(files.listStatus(folder)):
                files.delete(folder, False)


def web_hdfs_of(spark: SparkSession, location: Location) -> WebHdfs | None:
    """The WebHDFS service of the HDFS that a location lies on, for the user of the session.

    None where the session has no JVM to ask, or HDFS wants tickets of Kerberos, which Python workers do not have.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None or location.scheme != "hdfs":
        return None
    with _jvm_call(f"Looking for the name nodes of {location}"):
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        if users.isSecurityEnabled():
            return None
        authority = jvm.org.apache.hadoop.fs.Path(location.scheme, location.authority or None, "/")
        authority = str(authority.getFileSystem(conf).getUri().getAuthority())
        return WebHdfs(name_node_addresses(authority, conf.get), str(users.getCurrentUser().getShortUserName()))


class _AlreadyThereError(HiveToDeltaError):
    pass


@contextmanager
def _jvm_call(doing: str) -> Iterator[None]:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        name = str(error.java_exception.getClass().getSimpleName())
        message = f"{doing}: {name}: {error.java_exception.getMessage()}"
        if name == "FileAlreadyExistsException":
            raise _AlreadyThereError(message) from error
        if name in {"FileNotFoundException", "NoSuchFileException"}:
            raise MissingError(message) from error
        if name in {"AccessControlException", "AccessDeniedException"}:
            raise AccessDeniedError(f"{message}. Grant this identity access, or run with another one") from error
        if name == "UnsupportedFileSystemException" or "ClassNotFoundException" in message:
            raise PermanentError(f"{message}. Put the file system's jar on the cluster") from error
        raise TransientError(message) from error
    except (Py4JError, PySparkException) as error:
        kind = PermanentError if isinstance(error, PySparkException) else TransientError
        raise kind(f"{doing}: {error}") from error
