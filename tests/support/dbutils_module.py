"""What ``pyspark.dbutils`` is on compute of Databricks: files through the session's own access, over Hadoop here.

The stand-in for Databricks gives this module to the jobs that it runs under that name. Like the real one it looks for a
file before it writes it, and does not write conditionally.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class FileInfo(NamedTuple):
    path: str
    name: str
    size: int
    modificationTime: int


class DBUtils:
    def __init__(self, spark: Any) -> None:
        self.fs = FileSystemUtils(spark)


class FileSystemUtils:
    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def ls(self, path: str) -> list[FileInfo]:
        target, files = self._open(path)
        found = []
        for status in files.listStatus(target):
            folder = "/" if status.isDirectory() else ""
            whole, name = status.getPath().toString(), status.getPath().getName()
            found.append(FileInfo(whole + folder, name + folder, status.getLen(), status.getModificationTime()))
        return found

    def head(self, path: str, maxBytes: int = 65536) -> str:
        target, files = self._open(path)
        stream = files.open(target)
        try:
            return bytes(stream.readNBytes(maxBytes)).decode(errors="replace")
        finally:
            stream.close()

    def put(self, path: str, contents: str, overwrite: bool = False) -> bool:
        target, files = self._open(path)
        stream = files.create(target, overwrite)
        stream.write(contents.encode())
        stream.close()
        return True

    def cp(self, source: str, target: str) -> bool:
        there, from_files = self._open(source)
        here, to_files = self._open(target)
        utils = self._jvm.org.apache.hadoop.fs.FileUtil
        return bool(utils.copy(from_files, there, to_files, here, False, True, self._conf))

    def mv(self, source: str, target: str) -> bool:
        self.ls(source)
        self.cp(source, target)
        return self.rm(source)

    def rm(self, path: str) -> bool:
        target, files = self._open(path)
        return bool(files.delete(target, False))

    def _open(self, path: str) -> tuple[Any, Any]:
        target = self._jvm.org.apache.hadoop.fs.Path(path)
        return target, target.getFileSystem(self._conf)
