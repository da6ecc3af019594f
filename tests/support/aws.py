"""The AWS that the tests simulate."""

from __future__ import annotations

REGION = "us-east-1"
