"""How many examples hypothesis tries.

``HYPOTHESIS_PROFILE=long`` searches for hours where the suite searches for seconds, from a fresh seed each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


def examples(usual: int, long: int) -> settings:
    """The settings of a test that tries so many examples, usually and in the long profile."""
    return settings(
        max_examples=long if LONG else usual,
        derandomize=not LONG,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
