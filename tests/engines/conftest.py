"""No test of an engine leaves a process or a port behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.left_behind import nothing_left_behind


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    with nothing_left_behind():
        yield
