"""The API of the page of campaigns: what it shows to whom, what it reads for that, and which decisions it records."""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_hive_to_delta.campaigns.states import TableState
from airflow_hive_to_delta.campaigns.view.report import render_campaign_report
from airflow_hive_to_delta.plugins.campaigns import CampaignSite
from airflow_hive_to_delta.plugins.documents import CampaignFolder
from tests.support.campaign_documents import SimulatedCampaign
from tests.support.dag_rights import USERS, token_for
from tests.support.imports import imported_by

NOW = datetime(2026, 11, 18, 4, 30, tzinfo=UTC)
PREFIX = "/hive-to-delta"
CAMPAIGN = f"{PREFIX}/api/campaigns/0/lake-2026"
HOSTILE = "<img src=x onerror=alert(1)>"

Browsers = Callable[..., TestClient]


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    return SimulatedCampaign(tmp_path, tables=120, now=NOW).write()


@pytest.fixture
def auth_manager(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Airflow's own authentication, with users whose rights differ."""
    monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "tests.support.dag_rights.DagRights")
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", USERS)
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", secrets.token_urlsafe(64))
    from airflow.api_fastapi.app import init_auth_manager, purge_cached_app

    purge_cached_app()
    yield init_auth_manager()
    purge_cached_app()


@pytest.fixture
def browsers(auth_manager: Any, tmp_path: Path) -> Iterator[Browsers]:
    """Makes the client of a user, who sees the campaigns below the test's folder; None: one who has not logged in."""
    from airflow_hive_to_delta.plugins.app import create_app

    opened = []

    def browser(user: str | None = "ada", roots: list[str] | None = None) -> TestClient:
        server = FastAPI()
        site = CampaignSite([tmp_path.as_uri()] if roots is None else roots, max_age=0, patience=60)
        server.mount(PREFIX, create_app(site))
        client = TestClient(server, cookies={"_token": token_for(auth_manager, user)} if user else None)
        opened.append(client)
        return client

    yield browser
    for client in opened:
        client.close()


@pytest.fixture
def ada(browsers: Browsers) -> TestClient:
    return browsers("ada")


def get(client: TestClient, path: str, **params: Any) -> Any:
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(answer: Any) -> list[str]:
    return [row["table"] for row in answer["rows"]]


def test_a_campaign_is_shown_at_a_glance(campaign: SimulatedCampaign, ada: TestClient) -> None:
    (listed,) = get(ada, f"{PREFIX}/api/campaigns")["campaigns"]
    assert (listed["name"], listed["dag_id"], listed["tables"]) == ("lake-2026", "migrate_lake", 120)
    shown = get(ada, CAMPAIGN)
    summary = json.loads((campaign.root / "summary.json").read_text())
    counts = {state: count for state, count in shown["by_state"].items() if count["tables"]}
    assert counts == {**summary["by_state"], **{k: v for k, v in counts.items() if k not in summary["by_state"]}}
    assert sum(count["tables"] for count in counts.values()) == 120
    curve = shown["burn_down"]
    assert curve["at"] == sorted(curve["at"])
    assert curve["tables"] == sorted(curve["tables"], reverse=True)
    done = sum(shown["by_state"][state]["tables"] for state in ("verified", "needs_person"))
    assert curve["tables"][0] - curve["tables"][-1] == done
    assert len(shown["waves"]) == 18
    assert shown["may_edit"] is True


def test_the_report_says_what_the_page_says(campaign: SimulatedCampaign, ada: TestClient) -> None:
    documents = [json.loads(path.read_text()) for path in campaign.root.glob("tables/*/*.json")]
    documents[0] |= {"owner": HOSTILE, "notes": [HOSTILE], "error": HOSTILE}
    campaign.write_state(documents[0])
    campaign.change_summary(forecast="2999-01-02T03:04:05+00:00")
    shown = get(ada, CAMPAIGN)
    summary = json.loads((campaign.root / "summary.json").read_text())
    states = [TableState.from_dict(document) for document in documents]
    run = summary["waves"][-1]["run"]
    report = render_campaign_report(states, summary, {"dag_id": HOSTILE}, run=run, now=datetime.now(UTC))
    assert HOSTILE not in report
    assert f'<p class="verdict {shown["verdict"]["tone"]}">{shown["verdict"]["text"]}</p>' in report
    cards = re.findall(r'<li class="(.*)"><span>(.*)</span><strong>(.*)</strong><small>(.*)</small></li>', report)
    assert [(card["tone"], card["name"], card["value"]) for card in shown["cards"]] == [card[:3] for card in cards]
    labels = {state["name"]: state["label"] for state in get(ada, f"{PREFIX}/api/campaigns")["states"]}
    bar = re.findall(r'<li><span class="pill (\w+)">([\w ]+)</span> <b>(\d+)</b></li>', report)
    counts = {name: count["tables"] for name, count in shown["by_state"].items() if count["tables"]}
    assert [(name, labels[name], str(count)) for name, count in counts.items()] == bar
    assert report.count('<tr class="current">') == 1
    assert "<link" not in report


def test_the_report_of_the_last_wave_is_shown_without_a_part_in_the_session(campaign, browsers: Browsers) -> None:
    ada, eve = browsers("ada"), browsers("eve")
    assert ada.get(f"{CAMPAIGN}/report").status_code == 404
    (campaign.root / "report.html").write_text("<p>written by whoever may write to the bucket")
    shown = ada.get(f"{CAMPAIGN}/report")
    assert (shown.text, shown.headers["content-type"]) == (
        *("<p>written by whoever may write to the bucket", "text/html; charset=utf-8"),
    )
    assert shown.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'; ")
    assert eve.get(f"{CAMPAIGN}/report").json() == eve.get(f"{PREFIX}/api/campaigns/0/none/report").json()
    assert browsers(None).get(f"{CAMPAIGN}/report").status_code == 401


def test_the_forecast_is_that_of_the_summary_while_it_lies_ahead(campaign, ada: TestClient) -> None:
    campaign.change_summary(forecast="2999-01-02T03:04:05+00:00")
    assert get(ada, CAMPAIGN)["burn_down"]["forecast"] == datetime(2999, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    campaign.change_summary(forecast="2020-01-01T00:00:00+00:00")
    assert get(ada, CAMPAIGN)["burn_down"]["forecast"] is None


def test_tables_are_paged_sorted_filtered_and_searched(campaign, ada: TestClient) -> None:
    everything = get(ada, f"{CAMPAIGN}/tables", limit=200)
    assert everything["total"] == everything["matching"] == len(everything["rows"]) == 120
    pages = [get(ada, f"{CAMPAIGN}/tables", limit=50, offset=offset) for offset in (0, 50, 100, 150)]
    assert [name for page in pages for name in names(page)] == names(everything)
    largest = get(ada, f"{CAMPAIGN}/tables", sort="bytes", order="desc")["rows"]
    assert [row["bytes"] for row in largest] == sorted((row["bytes"] for row in everything["rows"]), reverse=True)[:100]
    by_state = Counter(row["state"] for row in everything["rows"])
    verified = get(ada, f"{CAMPAIGN}/tables", state="verified", limit=200)
    assert verified["matching"] == by_state["verified"] > 0
    some = get(ada, f"{CAMPAIGN}/tables", state=["refused", "excluded"])
    assert some["matching"] == by_state["refused"] + by_state["excluded"]
    owned = get(ada, f"{CAMPAIGN}/tables", owner="risk", limit=200)["rows"]
    assert {row["owner"] for row in owned} == {"risk"}
    found = get(ada, f"{CAMPAIGN}/tables", search="ORDERS sales.", limit=200)
    assert names(found) == [name for name in names(everything) if "sales." in name and "orders" in name]
    assert get(ada, f"{CAMPAIGN}/tables", search="no such table")["rows"] == []


def test_names_are_sorted_by_the_numbers_in_them(campaign, ada: TestClient) -> None:
    longest = f"z.t{'9' * 200}"
    for name in ("z.t10", "z.t2", "z.T1", longest):
        campaign.write_state({"format": 1, "table": name, "state": "planned", "history": []})
    assert names(get(ada, f"{CAMPAIGN}/tables", search="z.t")) == ["z.T1", "z.t2", "z.t10", longest]


@pytest.mark.parametrize("params", [{"limit": 201}, {"limit": 0}, {"offset": -1}, {"sort": "__class__"}])
def test_other_queries_are_refused(campaign, ada: TestClient, params: dict[str, Any]) -> None:
    assert ada.get(f"{CAMPAIGN}/tables", params=params).status_code == 422


def test_a_table_is_shown_with_its_history(campaign, ada: TestClient) -> None:
    name = get(ada, f"{CAMPAIGN}/tables", state="verified")["rows"][0]["table"]
    shown = get(ada, f"{CAMPAIGN}/table", table=name)
    assert [entry["state"] for entry in shown["state"]["history"]] == ["planned", "approved", "converted", "verified"]
    assert shown["row"]["state"] == "verified"
    assert shown["decisions"] == []
    assert ada.get(f"{CAMPAIGN}/table", params={"table": "no.such"}).status_code == 404


def test_texts_of_a_metastore_stay_texts_without_credentials(campaign, ada: TestClient) -> None:
    error = f"Denied {HOSTILE}: s3://lake/x?X-Amz-Signature=deadbeef"
    state = {"format": 1, "table": f"sales.{HOSTILE}", "state": "failed", "error": error, "history": []}
    campaign.write_state({**state, "notes": ["password=hunter2"]})
    answer = ada.get(f"{CAMPAIGN}/table", params={"table": f"sales.{HOSTILE}"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    shown = answer.json()
    assert shown["state"]["error"] == shown["row"]["error"] == f"Denied {HOSTILE}: s3://lake/x?X-Amz-Signature=***"
    assert shown["state"]["notes"] == ["password=***"]


def test_a_document_that_is_none_does_not_take_the_page_down(campaign, ada: TestClient) -> None:
    folder = campaign.root / "tables" / "00"
    folder.mkdir(exist_ok=True)
    (folder / "half.json").write_text('{"table": "sal')
    (folder / "list.json").write_text("[]")
    (folder / "other.json").write_text('{"table": 3, "history": [1, {"at": []}]}')
    campaign.write_state({"table": "a.b", "state": "frozen", "history": "none", "bytes": "many", "files": float("nan")})
    found = get(ada, f"{CAMPAIGN}/tables", search="a.b")
    assert [(row["table"], row["state"], row["bytes"], row["files"]) for row in found["rows"]] == [
        ("a.b", "planned", 0, 0)
    ]
    assert found["total"] == 121


@pytest.mark.parametrize("spoilt", [{"waves": 5}, {"waves": [5, {"started": {}}], "final": 3}, {"by_state": [1]}])
def test_a_summary_that_somebody_has_edited_wrongly_hides_no_campaign(
    campaign, ada: TestClient, spoilt: dict[str, Any]
) -> None:
    path = campaign.root / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **spoilt}))
    assert [each["name"] for each in get(ada, f"{PREFIX}/api/campaigns")["campaigns"]] == ["lake-2026"]
    assert get(ada, CAMPAIGN)["name"] == "lake-2026"


def test_a_decision_is_recorded_with_the_name_of_the_user(campaign, ada: TestClient) -> None:
    one, two = names(get(ada, f"{CAMPAIGN}/tables"))[:2]
    answer = ada.post(f"{CAMPAIGN}/decisions", json={"tables": [one], "decision": "exclude", "note": "a copy"})
    assert answer.status_code == 201, answer.text
    assert ada.post(f"{CAMPAIGN}/decisions", json={"tables": [one, two, one], "priority": 7}).status_code == 201
    excluded, *others = campaign.read_decisions()
    at = datetime.fromisoformat(excluded.pop("at"))
    assert at.tzinfo == UTC
    assert excluded == {"format": 1, "by": "ada", "table": one, "decision": "exclude", "note": "a copy"}
    assert sorted((other["table"], other["priority"]) for other in others) == sorted([(one, 7), (two, 7)])
    shown = get(ada, f"{CAMPAIGN}/table", table=one)
    assert (shown["row"]["pending"], shown["row"]["priority"]) == ("exclude", 7)
    assert [decision.get("note") for decision in shown["decisions"]] == ["a copy", None]


def test_a_decision_that_a_wave_has_acted_upon_is_no_longer_pending(campaign, ada: TestClient) -> None:
    name = get(ada, f"{CAMPAIGN}/tables", state=["needs_person", "failed"])["rows"][0]["table"]
    assert ada.post(f"{CAMPAIGN}/decisions", json={"tables": [name], "decision": "retry"}).status_code == 201
    shown = get(ada, f"{CAMPAIGN}/table", table=name)
    assert shown["row"]["pending"] == "retry"
    (decision,) = (campaign.root / "decisions").iterdir()
    campaign.write_state({**shown["state"], "state": "approved", "decided": decision.name})
    assert get(ada, f"{CAMPAIGN}/table", table=name)["row"]["pending"] == ""


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "retry"},
        {"decision": "delete"},
        {"priority": 1_001},
        {"decision": "retry", "by": "somebody else"},
        {"decision": "retry", "note": "n" * 1_001},
        {"decision": "retry", "tables": []},
        {"decision": "retry", "tables": ["t"] * 201},
    ],
)
def test_a_decision_that_is_none_is_refused(campaign, ada: TestClient, body: dict[str, Any]) -> None:
    named = {} if body == {"decision": "retry"} else {"tables": ["sales.orders"]}
    assert ada.post(f"{CAMPAIGN}/decisions", json={**named, **body}).status_code == 422
    assert campaign.read_decisions() == []


def test_a_decision_about_a_table_of_another_campaign_is_refused(campaign, ada: TestClient) -> None:
    one = names(get(ada, f"{CAMPAIGN}/tables"))[0]
    answer = ada.post(f"{CAMPAIGN}/decisions", json={"tables": [one, "no.such"], "decision": "exclude"})
    assert answer.status_code == 404
    assert campaign.read_decisions() == [], "not even the one for the table that there is"


def test_who_may_only_read_the_dag_decides_nothing(campaign, browsers: Browsers) -> None:
    vera = browsers("vera")
    assert get(vera, CAMPAIGN)["may_edit"] is False
    one = names(get(vera, f"{CAMPAIGN}/tables"))[0]
    answer = vera.post(f"{CAMPAIGN}/decisions", json={"tables": [one], "decision": "exclude"})
    assert (answer.status_code, answer.json()["detail"]) == (403, "You may not edit the DAG migrate_lake")
    assert campaign.read_decisions() == []


@pytest.mark.parametrize(
    "path", ["", "/tables", "/table?table=x", "/report", "?dag_id=public", "/tables?dag_id=public"]
)
def test_who_may_not_read_the_dag_does_not_learn_of_the_campaign(campaign, browsers: Browsers, path: str) -> None:
    eve = browsers("eve")
    assert get(eve, f"{PREFIX}/api/campaigns")["campaigns"] == []
    hidden, missing = eve.get(f"{CAMPAIGN}{path}"), eve.get(f"{PREFIX}/api/campaigns/0/none{path}")
    assert hidden.status_code == missing.status_code == 404
    assert hidden.json() == missing.json()
    body = {"tables": ["x"], "decision": "exclude"}
    assert eve.post(f"{CAMPAIGN}/decisions?dag_id=public", json=body).status_code == 404


def test_a_campaign_of_a_dag_that_one_may_read_is_shown_beside_hidden_ones(campaign, browsers, tmp_path) -> None:
    SimulatedCampaign(tmp_path, name="open", dag_id="public", tables=5, now=NOW).write()
    shown = get(browsers("eve"), f"{PREFIX}/api/campaigns")["campaigns"]
    assert [each["name"] for each in shown] == ["open"]
    assert [each["name"] for each in get(browsers(), f"{PREFIX}/api/campaigns", dag_id="public")["campaigns"]] == [
        "open"
    ]


def test_a_campaign_belongs_to_the_dag_of_its_newest_wave_when_its_summary_names_none(campaign, browsers) -> None:
    waves = [{"dag_id": "public"}, {"dag_id": "migrate_lake"}, {}]
    campaign.change_summary(dag_id=None, waves=waves)
    assert get(browsers(), f"{PREFIX}/api/campaigns")["campaigns"][0]["dag_id"] == "migrate_lake"
    assert get(browsers("eve"), f"{PREFIX}/api/campaigns")["campaigns"] == []
    for dag_id, count in (("public", 1), ("migrate_lake", 1), ("other", 0)):
        assert len(get(browsers(), f"{PREFIX}/api/campaigns", dag_id=dag_id)["campaigns"]) == count


def test_the_tables_of_a_dag_run_are_found_by_its_id(campaign, ada: TestClient) -> None:
    wave = get(ada, CAMPAIGN)["waves"][3]
    for run in (wave["run_id"], wave["run"]):
        assert get(ada, f"{CAMPAIGN}/tables", run=run)["matching"] == wave["tables"]
    assert get(ada, f"{CAMPAIGN}/tables", run="other")["matching"] == 0


def test_a_campaign_that_names_no_dag_is_shown_to_nobody(campaign, ada: TestClient) -> None:
    campaign.change_summary(dag_id=None, waves=[])
    assert get(ada, f"{PREFIX}/api/campaigns")["campaigns"] == []
    assert ada.get(CAMPAIGN).status_code == 404


@pytest.mark.parametrize(
    "path", ["", "/0/lake-2026", "/0/lake-2026/tables", "/0/lake-2026/table?table=x", "/0/lake-2026/report"]
)
def test_who_has_not_logged_in_sees_nothing(campaign, browsers: Browsers, path: str) -> None:
    nobody = browsers(None)
    assert nobody.get(f"{PREFIX}/api/campaigns{path}").status_code == 401
    assert nobody.post(f"{CAMPAIGN}/decisions", json={"tables": ["x"], "decision": "retry"}).status_code == 401
    forged = {"Authorization": "Bearer x.y.z"}
    assert nobody.get(f"{PREFIX}/api/campaigns{path}", headers=forged).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_decides_nothing(campaign, ada: TestClient, site: str) -> None:
    one = names(get(ada, f"{CAMPAIGN}/tables"))[0]
    body, headers = {"tables": [one], "decision": "exclude"}, {"Sec-Fetch-Site": site}
    assert ada.post(f"{CAMPAIGN}/decisions", json=body, headers=headers).status_code == 403
    as_form = ada.post(f"{CAMPAIGN}/decisions", content=json.dumps(body), headers={"Content-Type": "text/plain"})
    assert as_form.status_code == 422
    assert campaign.read_decisions() == []


@pytest.mark.parametrize("name", ["%2e%2e", "..%2f..", ".hidden"])
def test_no_folder_but_a_campaign_is_read(campaign, ada: TestClient, tmp_path: Path, name: str) -> None:
    secret = {"format": 1, "campaign": "secret", "dag_id": "public", "phase": "convert"}
    (tmp_path / "summary.json").write_text(json.dumps(secret))
    assert ada.get(f"{PREFIX}/api/campaigns/0/{name}").status_code in (404, 422)
    for root in ("1", "-1", "x"):
        assert ada.get(f"{PREFIX}/api/campaigns/{root}/lake-2026").status_code in (404, 422)


def test_the_page_may_load_only_what_this_server_has(ada: TestClient, browsers: Browsers) -> None:
    page = browsers(None).get(f"{PREFIX}/")
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "://" not in page.text
    for asked in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert ada.get(f"{PREFIX}/{asked}").status_code == 200, asked
    assert ada.get(f"{PREFIX}/static/look/report.css").status_code == 422
    assert ada.get(f"{PREFIX}/static/../app.py").status_code == 404


def test_without_a_setting_the_page_says_what_is_missing(browsers: Browsers) -> None:
    assert get(browsers(roots=[]), f"{PREFIX}/api/campaigns")["roots"] == 0


def test_a_root_that_cannot_be_read_hides_no_other_and_says_nothing_of_itself(campaign, browsers, tmp_path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "campaigns").symlink_to(broken / "campaigns")  # which no file system follows
    ada = browsers("ada", [broken.as_uri(), tmp_path.as_uri()])
    found = get(ada, f"{PREFIX}/api/campaigns")
    assert [each["root"] for each in found["campaigns"]] == [1]
    assert found["problems"] == ["Staging root 1 cannot be read. The log of the API server has the error"]
    assert ada.get(f"{PREFIX}/api/campaigns/0/x").status_code == 502


def test_a_storage_that_fails_is_named_without_its_secrets(campaign, ada: TestClient, monkeypatch) -> None:
    def fail(*_: Any) -> Any:
        raise PermissionError("denied: https://u:secret@host/x")

    monkeypatch.setattr(CampaignFolder, "list_files", fail)
    answer = ada.get(CAMPAIGN)
    assert answer.status_code == 502
    assert answer.json()["detail"].endswith("PermissionError: denied: https://***@host/x")


def test_a_campaign_on_s3_is_read_by_the_connection_of_its_root(
    tmp_path: Path, browsers: Browsers, s3: Any, bucket: str, aws_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "aws", "login": "k", "password": "s", "extra": {"endpoint_url": aws_endpoint}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    campaign = SimulatedCampaign(tmp_path / "made", tables=40, now=NOW).write()
    for path in campaign.root.rglob("*"):
        if path.is_file():
            s3.put_object(Bucket=bucket, Key=f"staging/{path.relative_to(campaign.folder)}", Body=path.read_bytes())
    ada = browsers("ada", [f"s3://lake@{bucket}/staging", f"s3://{bucket}/empty"])
    found = get(ada, f"{PREFIX}/api/campaigns")
    assert ([each["name"] for each in found["campaigns"]], found["problems"]) == (["lake-2026"], [])
    found = get(ada, f"{CAMPAIGN}/tables", state="verified")
    assert found["total"] == 40
    name = names(found)[0]
    assert ada.post(f"{CAMPAIGN}/decisions", json={"tables": [name], "priority": 3}).status_code == 201
    shown = get(ada, f"{CAMPAIGN}/table", table=name)
    assert (shown["row"]["priority"], shown["decisions"][0]["by"]) == (3, "ada")
    states = (campaign.root / "tables").rglob("*.json")
    state = next(path for path in states if json.loads(path.read_text())["table"] == name)
    changed = json.dumps({**json.loads(state.read_text()), "state": "cut_over"})
    s3.put_object(Bucket=bucket, Key=f"staging/{state.relative_to(campaign.folder)}", Body=changed)
    assert names(get(ada, f"{CAMPAIGN}/tables", state="cut_over")) == [name]


def test_airflow_shows_the_page_in_its_navigation_and_beside_each_dag_run(airflow_home: Path, monkeypatch) -> None:
    from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

    from airflow_hive_to_delta.plugins.campaign_page import CampaignPagePlugin, _address

    views = [ExternalViewResponse.model_validate(view) for view in CampaignPagePlugin.external_views]
    assert {view.destination: view.href for view in views} == {
        **{"nav": f"{PREFIX}/", "dag_run": f"{PREFIX}/?dag_id={{DAG_ID}}&run_id={{RUN_ID}}"},
    }
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.com/team/airflow/")
    assert _address("x") == f"/team/airflow{PREFIX}/x"


def test_workers_load_the_plugin_without_its_app(airflow_home: Path) -> None:
    base = imported_by("import airflow.plugins_manager, airflow_hive_to_delta")
    assert imported_by("import airflow_hive_to_delta.plugins.campaign_page") - base == set()


def test_ten_thousand_tables_are_read_once_and_a_change_alone_afterwards(tmp_path, browsers, monkeypatch) -> None:
    campaign = SimulatedCampaign(tmp_path, tables=10_000, now=NOW).write()
    read: Counter[str] = Counter()
    cat, find = CampaignFolder.read_files, CampaignFolder.list_files

    def read_files(self: CampaignFolder, paths: Any) -> Any:
        wanted = list(paths)
        read["documents"] += len(wanted)
        return cat(self, wanted)

    def list_files(self: CampaignFolder, *folder: str) -> Any:
        read["listings"] += 1
        return find(self, *folder)

    monkeypatch.setattr(CampaignFolder, "read_files", read_files)
    monkeypatch.setattr(CampaignFolder, "list_files", list_files)
    ada = browsers("ada")
    shown = ada.get(CAMPAIGN)
    assert sum(count["tables"] for count in shown.json()["by_state"].values()) == 10_000
    states = len(list((campaign.root / "tables").rglob("*.json")))
    assert read == {"documents": states, "listings": 2}
    assert len(shown.content) < 40_000, "what is asked for every ten seconds"
    page = ada.get(f"{CAMPAIGN}/tables", params={"sort": "bytes", "order": "desc"})
    assert page.json()["matching"] == 10_000
    assert len(page.content) < 60_000
    again = ada.get(CAMPAIGN, headers={"If-None-Match": shown.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert read == {"documents": states, "listings": 6}
    row = page.json()["rows"][0]
    path = campaign.write_state({"format": 1, "table": row["table"], "state": "cut_over", "history": []})
    assert path.is_file()
    assert get(ada, f"{CAMPAIGN}/tables", state="cut_over")["rows"][0]["table"] == row["table"]
    assert read["documents"] - states <= 1
    path.unlink()
    assert get(ada, f"{CAMPAIGN}/tables", state="cut_over")["rows"] == []
