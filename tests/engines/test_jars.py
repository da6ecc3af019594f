"""The jars of the embedded Spark in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.cli import main
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.spark.jars import CLASSES_FILE, JARS_VARIABLE, PACKAGES_FILE, jar_settings
from airflow_hive_to_delta.core.spark.versions import local_jars
from airflow_hive_to_delta.engines.jars import FetchError, fetch_jars

DELTA, S3A = "io.delta:delta:1", "org.apache.hadoop:aws:2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that was fetched for DELTA and S3A."""
    for name in ("b.jar", "a.jar"):
        (tmp_path / name).touch()
    (tmp_path / PACKAGES_FILE).write_text(f"{DELTA}\n{S3A}\n")
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    return tmp_path


def test_without_a_folder_ivy_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JARS_VARIABLE)
    settings = jar_settings([DELTA, S3A], ["x:y"])
    assert settings == {"spark.jars.packages": f"{DELTA},{S3A}", "spark.jars.excludes": "x:y"}


def test_the_jars_of_the_folder_and_nothing_from_the_network(folder: Path) -> None:
    assert jar_settings([DELTA, S3A], []) == {"spark.jars": f"{folder}/a.jar,{folder}/b.jar"}


def test_classes_that_were_archived_are_used(folder: Path) -> None:
    (folder / CLASSES_FILE).touch()
    options = jar_settings([DELTA, S3A], [])["spark.driver.defaultJavaOptions"]
    assert options == f'"-XX:SharedArchiveFile={folder}/{CLASSES_FILE}"'


def test_jars_of_other_versions_are_refused(folder: Path) -> None:
    with pytest.raises(PermanentError, match=r"there are jars of io.delta:delta:1.*expected those of io.delta:delta:2"):
        jar_settings(["io.delta:delta:2", S3A], [])


def test_a_folder_that_was_never_filled_is_refused(folder: Path) -> None:
    (folder / PACKAGES_FILE).unlink()
    with pytest.raises(PermanentError, match=r"no jars of this package.*airflow-hive-to-delta fetch-jars"):
        jar_settings([DELTA, S3A], [])


def test_a_session_starts_from_the_folder(spark: SparkSession) -> None:
    folder = Path(os.environ[JARS_VARIABLE])
    assert (folder / PACKAGES_FILE).read_text().split() == [*local_jars().packages]
    jars = spark.conf.get("spark.jars", None) or ""
    assert {jar.rpartition("/")[2] for jar in jars.split(",")} == {path.name for path in folder.glob("*.jar")}
    assert not spark.conf.get("spark.jars.packages", None)
    jvm: Any = spark.sparkContext._jvm
    arguments = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert f"-XX:SharedArchiveFile={folder / CLASSES_FILE}" in list(arguments)


def test_a_fetch_that_fails_leaves_nothing_that_looks_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(folder / "nowhere"))
    with pytest.raises(FetchError, match="could not be started"):
        fetch_jars(folder)
    assert [path.name for path in folder.iterdir()] == []
    assert main(["fetch-jars", str(folder)]) == 1
    assert "nowhere/bin/java" in capsys.readouterr().err


def test_the_command_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fetch-jars", "--help"])
    assert ended.value.code == 0
    assert JARS_VARIABLE in capsys.readouterr().out
