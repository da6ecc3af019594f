"""A real Hadoop on loopback: HDFS, YARN and a Hive metastore service, in one JVM that ends with this process.

Hadoop's mini cluster and the metastore of Spark's jars are driven over py4j. All ports are free ones of 127.0.0.1.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.support.jvm_options import FAST_START_OPTIONS
from tests.support.project import PROJECT

JARS = PROJECT / ".jars" / "hadoop"
_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
#: What Hadoop and Derby reach for inside the JVM.
_OPENED = ("java.lang", "java.net", "java.nio", "java.util", "sun.nio.ch")


@dataclass(frozen=True)
class HadoopCluster:
    """Where the services are, and what their JVM gives."""

    jvm: Any
    #: ``hdfs://host:port``.
    hdfs: str
    #: ``thrift://host:port``.
    metastore: str
    #: A folder with ``core-site.xml``, ``hdfs-site.xml`` and ``yarn-site.xml`` for clients.
    conf_dir: Path
    #: The files of the services.
    folder: Path
    _hdfs_conf: Any

    def path(self, path: str) -> Any:
        """A path of HDFS in the JVM."""
        return self.jvm.org.apache.hadoop.fs.Path(path)

    @property
    def files(self) -> Any:
        """HDFS, as its superuser."""
        return self.jvm.org.apache.hadoop.fs.FileSystem.get(self._hdfs_conf)

    def put(self, local: Path, path: str) -> None:
        """Copy a local file to HDFS."""
        self.files.copyFromLocalFile(False, True, self.path(local.as_uri()), self.path(path))

    def read(self, path: str) -> bytes:
        """The content of a file on HDFS."""
        stream = self.files.open(self.path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        """The names in a folder of HDFS, in order."""
        return sorted(str(found.getPath().getName()) for found in self.files.listStatus(self.path(path)))


@contextmanager
def hadoop_cluster(folder: Path) -> Iterator[HadoopCluster]:
    """Start the services. They end with the block, and with this process however it ends.

    :param folder: for their files and logs; it is made.
    """
    folder.mkdir(parents=True)
    with (folder / "cluster.log").open("w") as log:
        gateway, process = _start_jvm(folder, log)
        try:
            jvm = gateway.jvm
            dfs, hdfs_conf = _start_hdfs(jvm, folder)
            hdfs = str(dfs.getURI().toString())
            yarn_conf = _start_yarn(jvm, hdfs_conf)
            with _metastore(jvm, hdfs) as metastore:
                conf_dir = _write_client_conf(folder / "conf", hdfs_conf, yarn_conf)
                yield HadoopCluster(jvm, hdfs, metastore, conf_dir, folder, hdfs_conf)
        finally:
            gateway.shutdown()
            if process.stdin is not None:
                process.stdin.close()
            process.kill()
            process.wait()
            for job in processes_of(folder):  # of a job that is left on YARN, whose node manager is gone now
                with suppress(ProcessLookupError):
                    os.kill(job, signal.SIGKILL)


def processes_of(folder: Path) -> list[int]:
    """The processes of a cluster and of its jobs: each has the cluster's folder on its command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(folder) in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def _start_jvm(folder: Path, log: Any) -> tuple[JavaGateway, subprocess.Popen[bytes]]:
    assert JARS.exists(), f"{JARS} is not there: `make .jars/hadoop/.fetched` downloads it"
    (temporary := folder / "tmp").mkdir()
    options = [
        *(*FAST_START_OPTIONS, "-Xmx1g"),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        f"-Djava.io.tmpdir={temporary}",
        f"-Dtest.build.data={folder}/data",
        f"-Dderby.stream.error.file={folder}/derby.log",
    ]
    port, token, process = launch_gateway(
        classpath=f"{JARS}/*{os.pathsep}{_SPARK_JARS}/*",
        javaopts=options,
        java_path=f"{os.environ['JAVA_HOME']}/bin/java",
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=log,
        redirect_stderr=log,
        cwd=str(folder),
        return_proc=True,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)), process


def _start_hdfs(jvm: Any, folder: Path) -> tuple[Any, Any]:
    hadoop = jvm.org.apache.hadoop
    conf = hadoop.hdfs.HdfsConfiguration()
    conf.set("hdfs.minidfs.basedir", f"{folder}/hdfs")
    conf.set("dfs.replication", "1")
    dfs = getattr(hadoop.hdfs, "MiniDFSCluster$Builder")(conf).numDataNodes(1).build()
    dfs.waitActive()
    return dfs, conf


def _start_yarn(jvm: Any, hdfs_conf: Any) -> Any:
    conf = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration(hdfs_conf)
    settings = {
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": "100",
        "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.nodemanager.resource.memory-mb": "4096",
        # The machine of a test may have a full disk, and containers that use more address space than they asked for.
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
    }
    for name, value in settings.items():
        conf.set(name, value)
    yarn = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
    yarn.init(conf)
    yarn.start()
    assert yarn.waitForNodeManagersToConnect(60_000)
    return yarn.getConfig()


@contextmanager
def _metastore(jvm: Any, hdfs: str) -> Iterator[str]:
    """The metastore's own handler behind a socket on loopback; its main class would listen on all interfaces."""
    hive, thrift = jvm.org.apache.hadoop.hive, jvm.org.apache.thrift
    conf = hive.conf.HiveConf()
    settings = {
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"{hdfs}/warehouse",
        "fs.defaultFS": hdfs,
    }
    for name, value in settings.items():
        conf.set(name, value)
    handler = hive.metastore.HiveMetaStore.newRetryingHMSHandler("metastore", conf, True)
    socket = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
    arguments = getattr(thrift.server, "TThreadPoolServer$Args")(socket)
    arguments = arguments.processor(hive.metastore.TUGIBasedProcessor(handler))
    arguments = arguments.transportFactory(getattr(hive.thrift, "TUGIContainingTransport$Factory")())
    server = thrift.server.TThreadPoolServer(arguments)
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.serve)
        try:
            yield f"thrift://127.0.0.1:{socket.getServerSocket().getLocalPort()}"
        finally:
            server.stop()
            serving.result()


def _write_client_conf(folder: Path, hdfs_conf: Any, yarn_conf: Any) -> Path:
    """The settings that clients need to find the services."""
    folder.mkdir()
    yarn = {
        name: yarn_conf.get(name)
        for name in (
            *("yarn.resourcemanager.address", "yarn.resourcemanager.scheduler.address"),
            *("yarn.resourcemanager.hostname", "yarn.resourcemanager.webapp.address"),
        )
    }
    files = {
        "core-site.xml": {"fs.defaultFS": hdfs_conf.get("fs.defaultFS")},
        "hdfs-site.xml": {
            "dfs.namenode.http-address": hdfs_conf.get("dfs.namenode.http-address"),
            "dfs.replication": "1",
        },
        "yarn-site.xml": {**yarn, "yarn.application.classpath": f"{_SPARK_JARS}/*"},
    }
    for name, settings in files.items():
        properties = "".join(
            f"<property><name>{key}</name><value>{escape(str(value))}</value></property>"
            for key, value in settings.items()
            if value
        )
        (folder / name).write_text(f"<configuration>{properties}</configuration>")
    return folder
