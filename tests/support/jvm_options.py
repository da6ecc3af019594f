"""Options of the JVMs that tests start, most of which live for seconds."""

from __future__ import annotations

#: No second compilation, no threads for the collection of garbage, and no check of classes, which are those of
#: releases: a JVM of Spark that has no archive of classes takes a fifth less to start.
FAST_START_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
#: The same as one text.
FAST_START = " ".join(FAST_START_OPTIONS)
