"""Run benchmarks: ``python -m benchmarks --case local-10k --scale 0.01 --json out.jsonl``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import data, report
from benchmarks.cases import CASES, NOT_BY_DEFAULT, Case
from benchmarks.jobs import Settings
from benchmarks.machine import describe_machine
from benchmarks.measure import REPEAT_WITHIN_SECONDS, measure
from benchmarks.report import make_lines, write_report
from benchmarks.servers import serve_glue, serve_s3


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    names = chosen.case or [name for name in CASES if name not in NOT_BY_DEFAULT]
    folder = Path(tempfile.mkdtemp(prefix="hive-to-delta-bench-", dir=chosen.scratch))
    try:
        for name in names:
            case = CASES[name]
            wanted = [each for each in case.contenders if not chosen.contender or each in chosen.contender]
            lines = run_case(case, wanted, folder / name, chosen)
            shutil.rmtree(folder / name, ignore_errors=True)
            for line in lines:
                print(json.dumps(line), flush=True)
            if chosen.json:
                report.keep_lines(chosen.json, lines)
            if chosen.report:
                write_report(report.read_lines(chosen.json), chosen.report)
            print(report.format_case(lines), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_case(case: Case, contenders: Sequence[str], folder: Path, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Make the tables of a case and run its contenders. Returns a line for each of them."""
    print(f"{case.name}: {case.title}, scale {chosen.scale:g}", file=sys.stderr, flush=True)
    (scratch := folder / "scratch").mkdir(parents=True)
    machine = describe_machine(folder)
    with _store(case, folder) as (store, server):
        entries = case.make(store, chosen.scale, contenders)
        measured = measure(
            entries,
            Settings(scratch, chosen.memory),
            modes=[mode for mode in case.modes if chosen.mode in (None, mode)],
            rounds=case.rounds or chosen.rounds,
            repeat_within=chosen.repeat_within,
        )
    if server:
        machine["s3_server"] = server
    return make_lines(case, entries, measured, chosen.scale, machine)


@contextmanager
def _store(case: Case, folder: Path) -> Iterator[tuple[data.Store, str | None]]:
    """The place for the tables of a case, and the name of the S3 server if it is on one."""
    if case.storage == "local":
        yield data.LocalStore(folder), None
        return
    before = dict(os.environ)
    try:
        with serve_s3(folder) as server, serve_glue(folder) as glue_endpoint:
            os.environ.update(server.environment, AWS_ENDPOINT_URL_GLUE=glue_endpoint)
            yield data.S3Store("bench"), server.name
    finally:
        os.environ.clear()
        os.environ.update(before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", choices=CASES, help="a case; all but million when not given")
    parser.add_argument("--contender", action="append", help="only this contender of the cases")
    parser.add_argument("--scale", type=float, default=1.0, help="make tables smaller, 0.01 for a hundredth")
    parser.add_argument("--mode", choices=("cold", "warm"), help="one of the two only")
    parser.add_argument("--rounds", type=int, default=3, help="how often each contender runs; the best counts")
    parser.add_argument(
        "--repeat-within",
        type=float,
        default=REPEAT_WITHIN_SECONDS,
        help="do not repeat runs that take more seconds than this",
    )
    parser.add_argument("--memory", default="2g", help="memory of each JVM")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=os.environ.get("BENCH_SCRATCH") or None,
        help="a folder for the data, which is removed at the end; default: $BENCH_SCRATCH, or the system's",
    )
    parser.add_argument("--json", type=Path, help="a file for the results, a line for each case and contender")
    parser.add_argument("--report", type=Path, help="write a report of all results in the file of --json")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Terminated"))  # so that servers and data are removed
    main()
