"""The files of a log that make up one version of its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.log.files import (
    COMMIT,
    log_files,
    log_folder,
    refuse_broken,
    refuse_catalog_managed,
    refuse_half_rolled_back,
)
from airflow_hive_to_delta.core.errors import MissingError
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.base import Storage


@dataclass(frozen=True)
class LogSegment:
    """The files that make up one version: a checkpoint, if there is one, and the entries after it."""

    root: Location
    version: int
    checkpoint_version: int | None
    #: Names of the checkpoint's files.
    checkpoint: tuple[str, ...]
    #: Versions of the entries after the checkpoint, without a gap.
    commits: tuple[int, ...]
    #: Modification time of every entry that is there, before the checkpoint and up to this version too.
    times: dict[int, int]
    #: Size in bytes of each of those entries.
    sizes: dict[int, int]
    #: Size in bytes of the files of the checkpoint together, without its sidecars.
    checkpoint_size: int


def log_segment(
    storage: Storage, root: Location, version: int | None = None, *, before_checkpoint: int | None = None
) -> LogSegment:
    """The files of a log that make up a version of its table.

    :param version: the latest version when none is given.
    :param before_checkpoint: use only checkpoints of versions before this one, whose own cannot be read.
    :raises MissingError: there is no log, or the version cannot be put together from the files that are left.
    :raises PermanentError: a rollback of the table was begun and has not finished.
    :raises UnsupportedTableError: a catalog decides about the commits of the table.
    """
    refuse_catalog_managed(storage, root)
    refuse_half_rolled_back(storage, root)
    found = storage.list_files(log_folder(root))
    entries = {int(file.name[:20]): file for file in found if COMMIT.fullmatch(file.name)}
    # An empty checkpoint is one whose writer has not written it yet. Delta ignores it too.
    files = log_files(file.name for file in found if file.size or COMMIT.fullmatch(file.name))
    if not files.names:
        raise MissingError(f"{root} holds no Delta log. Convert the table first")
    wanted = files.latest if version is None else version
    if version is None and before_checkpoint is None:
        refuse_broken(storage, root, files)
    if not 0 <= wanted <= files.latest:
        raise MissingError(f"{root} has no version {wanted}; its latest is {files.latest}")
    try:
        start = files.checkpoint_for(wanted, before_checkpoint)
    except MissingError as error:
        raise MissingError(
            f"Version {wanted} of {root} cannot be put together: {error}. Take a later version, or restore the log"
        ) from error
    checkpoint = () if start is None else files.checkpoints[start]
    after = tuple(range(0 if start is None else start + 1, wanted + 1))
    there = {entry: file for entry, file in entries.items() if entry <= wanted}
    return LogSegment(
        root,
        wanted,
        start,
        checkpoint,
        after,
        {entry: file.modified for entry, file in there.items()},
        {entry: file.size for entry, file in there.items()},
        sum(file.size for file in found if file.name in checkpoint),
    )
