"""The documents of a believable campaign, as the waves of some weeks leave them: for tests and for the demo."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from airflow_hive_to_delta.job.file_names import safe_name

#: Owners with the number of tables out of a hundred that are theirs.
_OWNERS = {"sales-data": 30, "risk": 22, "web-analytics": 18, "logistics": 14, "finance": 11, "": 5}
_DATABASES = ("sales", "risk", "web", "logistics", "finance", "hr", "archive", "reporting")
_SUBJECTS = (
    *("orders", "order_items", "payments", "customers", "sessions", "page_views", "shipments", "inventory", "invoices"),
    *("ledger", "positions", "trades", "limits", "clicks", "impressions", "employees", "returns", "carriers", "prices"),
)
_TRANSIENT = (
    "SlowDown: Please reduce your request rate (GetObject, s3://lake-{bucket}/{name}/dt=2026-03-04/part-00017.parquet)",
    "The connection to the catalog was lost while partitions of {name} were listed: read timed out after 60 s",
)
_PERMANENT = (
    (
        "SchemaConflictError",
        "Column amount of {name} is INT32 in dt=2023-11-02/part-00003.parquet, expected DOUBLE as in the catalog",
        "Rewrite the partition with the type that the catalog has, then retry the table",
    ),
    (
        "AccessDeniedError",
        "AccessDenied: s3://archive-{bucket}/{name}/ may not be listed by this identity",
        "Give the job's role s3:ListBucket on that bucket, then retry the table",
    ),
)


@dataclass
class SimulatedCampaign:
    """A campaign whose waves have run up to some share of its tables.

    :param folder: the staging root.
    :param progress: the share of the tables that waves have worked on.
    """

    folder: Path
    name: str = "lake-2026"
    dag_id: str = "migrate_lake"
    tables: int = 1_000
    progress: float = 0.6
    waves: int = 18
    seed: int = 15
    #: Until when the waves have run.
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    @property
    def root(self) -> Path:
        """The folder of the campaign."""
        return self.folder / "campaigns" / self.name

    def write(self) -> SimulatedCampaign:
        """Write all documents, and return the campaign."""
        chance = random.Random(self.seed)
        planned = [self._planned(number, chance) for number in range(self.tables)]
        self.root.mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(planned), self.root / "plan.parquet")
        todo = [row for row in planned if row["decision"] == "convert"]
        done = todo[: round(len(todo) * self.progress)]
        each = max(1, -(-len(done) // self.waves))
        waves, states = [], []
        for number in range(self.waves):
            started = self.now - timedelta(days=self.waves - number, hours=4)
            in_wave = done[number * each : (number + 1) * each]
            worked = [self._worked_on(row, number, started, chance) for row in in_wave]
            states += worked
            waves.append(self._wave(number, started, worked))
        worked_on = {state["table"] for state in states}
        states += [self._idle(row) for row in planned if row["table"] not in worked_on]
        for state in states:
            self.write_state(state)
        for wave in waves:
            self._write(f"waves/{safe_name(wave['run'])}.json", wave)
        self._write("summary.json", self._summary(planned, states, waves))
        return self

    def write_state(self, state: dict[str, Any]) -> Path:
        """Write the state of a table, and return its path."""
        folder = hashlib.sha256(state["table"].encode()).hexdigest()[:2]
        return self._write(f"tables/{folder}/{safe_name(state['table'])}.json", state)

    def read_decisions(self) -> list[dict[str, Any]]:
        """The decisions that people have made, in their order."""
        return [json.loads(path.read_text()) for path in sorted((self.root / "decisions").glob("*.json"))]

    def read_summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.root / "summary.json").read_text())
        return summary

    def change_summary(self, **changes: Any) -> None:
        self._write("summary.json", {**self.read_summary(), **changes})

    def _planned(self, number: int, chance: random.Random) -> dict[str, Any]:
        database, subject = chance.choice(_DATABASES), chance.choice(_SUBJECTS)
        name = f"{database}.{subject}_{number:04}"
        files = max(1, round(chance.lognormvariate(4.5, 1.6)))
        decision, reason = "convert", ""
        if number % 97 == 3:
            decision, reason = "refused", "It is stored as ORC, expected Parquet"
        elif number % 61 == 5:
            decision, reason = "exclude", "Scratch tables are left out"
        return {
            "table": name,
            "owner": chance.choices(list(_OWNERS), list(_OWNERS.values()))[0],
            "files": files,
            "bytes": round(files * chance.lognormvariate(17.5, 0.8)),
            "format": "orc" if decision == "refused" else "parquet",
            "priority": chance.choices((0, 10, -10), (90, 6, 4))[0],
            "decision": decision,
            "reason": reason,
            "location": f"s3://lake-{database}/{subject}_{number:04}",
            "target": f"lake.{name}",
        }

    def _worked_on(self, row: dict[str, Any], wave: int, started: datetime, chance: random.Random) -> dict[str, Any]:
        run, unit = self._run(wave), chance.randrange(12)
        at = started + timedelta(minutes=chance.randrange(10, 230))
        luck, bucket = chance.random(), row["location"].split("/")[2]
        history: list[dict[str, Any]] = [
            *self._idle(row)["history"],
            {"at": _iso(started), "state": "approved", "run": run, "unit": None, "attempt": 0, "by": "Ada Lovelace"},
        ]
        log_url = f"/dags/{self.dag_id}/runs/{self._run_id(wave)}/tasks/campaign.run_packed/mapped/{unit}"
        state: dict[str, Any] = {
            **self._idle(row),
            **{"updated": _iso(at), "attempts": 1, "lease_run": run, "log_url": log_url},
            "job_url": f"https://console.example/spark/wave-{wave}-{unit}",
        }
        event = {"at": _iso(at), "run": run, "unit": unit, "attempt": 1}
        if luck < 0.02:
            error = chance.choice(_TRANSIENT).format(name=row["table"], bucket=bucket)
            state |= {"state": "failed", "error": error, "error_kind": "TransientError", "retryable": True}
            state |= {"next_attempt": _iso(self.now + timedelta(hours=3)), "advice": "The next wave tries it again."}
        elif luck < 0.03:
            kind, error, advice = chance.choice(_PERMANENT)
            state |= {"state": "needs_person", "error": error.format(name=row["table"], bucket=bucket), "attempts": 3}
            state |= {"error_kind": kind, "retryable": False, "advice": advice}
        else:
            state |= {"state": "verified", "version": 0, "verified": {"counts": 0}, "rows": row["files"] * 41_337}
            state["notes"] = ["4 partitions lie outside of the table's location"] if luck > 0.9 else []
            history.append({**event, "at": _iso(at - timedelta(minutes=2)), "state": "converted"})
        errors = {"error": state["error"]} if state["error"] else {}
        history.append({**event, "state": state["state"], **errors})
        return {**state, "history": history}

    def _idle(self, row: dict[str, Any]) -> dict[str, Any]:
        """The state of a table on which no wave has worked."""
        state = {"convert": "planned", "refused": "refused", "exclude": "excluded"}[row["decision"]]
        return {
            **{"format": 1, "table": row["table"], "state": state, "attempts": 0, "next_attempt": None},
            **{"verified": {}, "version": None, "error": row["reason"] or None, "error_kind": None, "retryable": None},
            **{"advice": "", "location": row["location"], "target_table": row["target"]},
            **{"files": row["files"], "bytes": row["bytes"], "rows": None, "owner": row["owner"]},
            **{"log_url": None, "job_url": None, "probation_until": None, "updated": _iso(self._planned_at)},
            "history": [{"at": _iso(self._planned_at), "state": state, "run": "plan", "unit": "plan", "attempt": 0}],
        }

    def _wave(self, number: int, started: datetime, worked: list[dict[str, Any]]) -> dict[str, Any]:
        failed = [state["table"] for state in worked if state["state"] in ("failed", "needs_person")]
        return {
            **{"dag_id": self.dag_id, "run_id": self._run_id(number)},
            **{"format": 1, "run": self._run(number), "phase": "convert", "started": _iso(started)},
            **{"ended": _iso(started + timedelta(hours=4)), "units": 12, "tables": len(worked)},
            **{"bytes": sum(state["bytes"] for state in worked), "failed": failed[:100]},
            "failed_count": len(failed),
        }

    def _summary(
        self, planned: list[dict[str, Any]], states: list[dict[str, Any]], waves: list[dict[str, Any]]
    ) -> dict[str, Any]:
        found = {state["table"]: state["state"] for state in states}
        by_state: dict[str, dict[str, int]] = {}
        for row in planned:
            counts = by_state.setdefault(found.get(row["table"], "planned"), {"tables": 0, "bytes": 0})
            counts["tables"] += 1
            counts["bytes"] += row["bytes"]
        left = (1 - self.progress) / max(self.progress, 0.01) * self.waves
        return {
            **{"format": 1, "campaign": self.name, "dag_id": self.dag_id, "phase": "convert"},
            **{"updated": _iso(self.now), "tables": len(planned), "bytes": sum(row["bytes"] for row in planned)},
            **{"by_state": by_state, "waves": waves[-200:], "forecast": _iso(self.now + timedelta(days=left))},
        }

    @property
    def _planned_at(self) -> datetime:
        return self.now - timedelta(days=self.waves + 1)

    def _run(self, wave: int) -> str:
        return f"{self.dag_id}.{self._run_id(wave)}.convert"

    def _run_id(self, wave: int) -> str:
        return f"scheduled__{self.now - timedelta(days=self.waves - wave):%Y-%m-%dT20:00:00+00:00}"

    def _write(self, name: str, document: dict[str, Any]) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
        return path


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
