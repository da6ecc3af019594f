"""The jars of the embedded Spark from a folder, instead of from the network at each start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from airflow_hive_to_delta.core.errors import PermanentError

#: The environment variable that names the folder which ``airflow-hive-to-delta fetch-jars`` has filled.
JARS_VARIABLE = "HIVE_TO_DELTA_JARS"
#: In such a folder: the packages that its jars are of.
PACKAGES_FILE = "packages.txt"
#: In such a folder: the classes of a session as the JVM keeps them for its next start (class data sharing).
CLASSES_FILE = "classes.jsa"


def jar_settings(packages: Sequence[str], excluded: Sequence[str]) -> dict[str, str]:
    """The settings by which a session finds its jars: in the folder of JARS_VARIABLE, or through Ivy.

    :param packages: the Maven coordinates of the packages that the session needs.
    :param excluded: those of packages which they depend on and the session does not need.
    :raises PermanentError: the folder does not hold the jars of these packages.
    """
    if not (named := os.environ.get(JARS_VARIABLE)):
        return {"spark.jars.packages": ",".join(packages), "spark.jars.excludes": ",".join(excluded)}
    folder = Path(named).absolute()
    listed = folder / PACKAGES_FILE
    held = listed.read_text().split() if listed.is_file() else []
    if held != list(packages):
        found = f"jars of {', '.join(held)}" if held else "no jars of this package"
        raise PermanentError(
            f"{JARS_VARIABLE} is {named!r}, where there are {found}; expected those of {', '.join(packages)}. Run "
            f"'airflow-hive-to-delta fetch-jars {named}', or take the variable out"
        )
    settings = {"spark.jars": ",".join(sorted(map(str, folder.glob("*.jar"))))}
    classes = folder / CLASSES_FILE
    if classes.is_file():
        # Those of another JVM are passed over by the JVM itself.
        settings["spark.driver.defaultJavaOptions"] = f'"-XX:SharedArchiveFile={classes}"'
    return settings
