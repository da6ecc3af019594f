"""Crashes at every step: what a process that is killed leaves behind, and whether the same call mends it.

A step is anything that changes a storage or a catalog. :func:`at_every_step` ends a call after its first step, after
its second, and so on, each time from a fresh start, and calls it again as a restarted process would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.s3 import S3Storage

#: What changes something, of every storage.
_CHANGES = ("put_if_absent", "replace", "delete", "delete_files", "move", "remove_folder")
#: What changes something, of Glue.
_GLUE_CHANGES = ("create_table", "update_table", "delete_table", "create_database")


class Killed(BaseException):
    """Not an Exception: nothing in the package may catch it, as nothing can catch a killed process."""


@contextmanager
def killed_at(step: int, *, after: bool) -> Iterator[list[str]]:
    """Inside the block the process ends at its step number ``step``, from 0. Yields the steps that it came to."""
    steps: list[str] = []

    def counted(change: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            if len(steps) > step:
                raise Killed(f"dead since {steps[step]}")  # a dead process does nothing more, in whatever thread
            steps.append(name)
            mine = len(steps) - 1 == step
            if mine and not after:
                raise Killed(f"before {name}")
            done = change(*arguments, **named)
            if mine:
                raise Killed(f"after {name}")
            return done

        return run

    with pytest.MonkeyPatch.context() as patch:
        for kind in (S3Storage, LocalStorage):
            for name in _CHANGES:
                patch.setattr(kind, name, counted(getattr(kind, name), f"{name} on {kind.__name__}"))
        whole = aws.glue_client

        def glue_client(region: str | None = None) -> Any:
            client = whole(region)

            class Counted:
                def __getattr__(self, name: str) -> Any:
                    found = getattr(client, name)
                    return counted(found, f"Glue's {name}") if name in _GLUE_CHANGES else found

            return Counted()

        patch.setattr(aws, "glue_client", glue_client)
        yield steps


def at_every_step(fresh: Callable[[], Any], call: Callable[[Any], Any], check: Callable[[Any], None]) -> list[str]:
    """Kill ``call`` at every step of its own, call it again, and check what is there then.

    :param fresh: makes a new table, and returns what ``call`` and ``check`` take.
    :returns: the steps, so that a test can see that there were some.
    """
    step = 0
    while True:
        subject = fresh()
        # Before a step is as after the one before it: nothing lies between them that anybody could see.
        with killed_at(step, after=True) as came_to:
            try:
                call(subject)
            except Killed:
                ended = False
            else:
                ended = True
        if ended:
            assert len(came_to) == step, "it went on past the step at which it should have ended"
            return came_to
        call(subject)
        check(subject)
        step += 1
