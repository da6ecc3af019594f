"""The page of campaigns in a real Airflow and a real browser: seen, clicked through, closed to who has no rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.browser import Browser
from tests.support.campaign_documents import SimulatedCampaign
from tests.support.dag_rights import USERS
from tests.support.real_airflow import RealAirflow, real_airflow

pytestmark = pytest.mark.slow

HOSTILE = "sales.<img src=x onerror=document.title='taken'>"
PASSWORDS = {"ada": "ada-of-tests", "vera": "vera-of-tests", "eve": "eve-of-tests"}
#: The document of the page: in Airflow's own, it lies in a frame.
PAGE = "(document.querySelector('iframe')?.contentDocument ?? document)"
KEYS = {"Enter": 13, "Escape": 27, "ArrowDown": 40}


@dataclass
class Site:
    """An Airflow with a campaign, and a browser that looks at it."""

    airflow: RealAirflow
    campaign: SimulatedCampaign
    browser: Browser

    def log_in(self, user: str) -> None:
        token = self.airflow.token_of(user, PASSWORDS[user])
        self.browser.call("Network.setCookie", name="_token", value=token, url=self.address())

    def address(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.airflow.port}/{path}"

    def open(self, path: str, **look: Any) -> None:
        self.browser.open(self.address(path), **look)

    def wait(self, expression: str) -> Any:
        """Evaluate an expression about the page until it is true, and return it. ``page`` is the page's document."""
        return self.airflow.wait(expression, lambda: self.browser.evaluate(f"(page => {expression})({PAGE})"))

    def see(self, expression: str) -> Any:
        return self.browser.evaluate(f"(page => {expression})({PAGE})")

    def click(self, selector: str) -> None:
        self.wait(f"(found => found && (found.click(), true))(page.querySelector({json.dumps(selector)}))")

    def type(self, selector: str, text: str) -> None:
        self.see(f"page.querySelector({json.dumps(selector)}).focus()")
        self.browser.call("Input.insertText", text=text)

    def text(self, selector: str) -> str | None:
        found: str | None = self.see(f"page.querySelector({json.dumps(selector)})?.textContent")
        return found

    def width(self, selector: str) -> float:
        """The width of all elements together that a selector finds."""
        widths = self.see(
            f"[...page.querySelectorAll({json.dumps(selector)})].map(each => each.getBoundingClientRect().width)"
        )
        return sum(map(float, widths))

    def wait_for(self, *selectors: str) -> None:
        for selector in selectors:
            self.wait(f"page.querySelector({json.dumps(selector)}) !== null")

    def press_on(self, title: str, key: str, opened: str) -> None:
        """Press a key while the element with this title has the focus, until what it opens is there."""

        def look() -> bool:
            if self.see(f"page.querySelector({json.dumps(opened)}) !== null"):
                return True
            if self.see(f"page.activeElement.title === {json.dumps(title)}"):
                self.press(key)
            return False

        self.airflow.wait(f"{key} on {title} opens {opened}", look)

    def press(self, key: str) -> None:
        known = {"windowsVirtualKeyCode": KEYS[key]} if key in KEYS else {"text": key}
        text = {"text": "\r"} if key == "Enter" else {}
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, **known, **text)
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, **known)

    def complaints(self) -> list[str]:
        """What the browser kept back or failed to do, and requests to any other host."""
        entries = [event["entry"] for event in self.browser.events("Log.entryAdded")]
        logged = [entry["text"] for entry in entries if entry["level"] == "error"]
        thrown = [str(event["exceptionDetails"]) for event in self.browser.events("Runtime.exceptionThrown")]
        sent = [event["request"]["url"] for event in self.browser.events("Network.requestWillBeSent")]
        assert sent, "requests are seen at all"
        of_network = [url for url in sent if url.startswith("http")]
        return [*logged, *thrown, *(url for url in of_network if not url.startswith(self.address()))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("page")
    campaign = SimulatedCampaign(folder / "staging", tables=1_500).write()
    state = {"format": 1, "table": HOSTILE, "state": "needs_person", "error": f"{HOSTILE} is denied", "history": []}
    links = {"job_url": "javascript:document.title='taken'", "log_url": "http://localhost:1/dags/x"}
    campaign.write_state({**state, **links, "advice": HOSTILE})
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps(PASSWORDS))
    settings = {
        "CORE__AUTH_MANAGER": "tests.support.dag_rights.DagRights",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "false",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": USERS,
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "HIVE_TO_DELTA__CAMPAIGNS": (folder / "staging").as_uri(),
    }
    with real_airflow(folder / "airflow", ("api-server",), settings) as airflow:
        yield Site(airflow, campaign, browser)


def test_the_campaign_is_shown_inside_of_airflow_and_decisions_are_made_there(site: Site) -> None:
    site.log_in("ada")
    site.open("plugin/hive-to-delta")
    site.wait_for(".tabulator-row:nth-child(5)", ".uplot canvas")
    assert (site.text("#title"), site.text("#count")) == ("lake-2026", "1,501 tables")
    assert site.width("#share rect") == pytest.approx(site.width("#share"), rel=0.01)
    assert site.see("page.querySelectorAll('.tabulator-row').length") < 100, "of 1,501 only those that are seen"

    site.click("#legend [data-state=needs_person]")
    site.wait("/^\\d+ of 1,501 tables$/.test(page.getElementById('count').textContent)")
    site.wait("!page.querySelector('.tabulator-row .pill:not(.needs_person)')")
    site.type("#search", "onerror")
    site.wait("page.getElementById('count').textContent.startsWith('1 of')")
    site.click(".tabulator-row .open")
    site.wait_for("#detail .fault")
    assert site.text("#detail h2") == HOSTILE
    assert site.text("#detail .fault .error") == f"{HOSTILE} is denied"
    assert site.see("page.querySelectorAll('img').length") == 0
    assert site.text("#detail .links") == "Log of its task", "and no link that is a script"

    site.type(".actions input[aria-label=Why]", "after the fix")
    site.click(".actions .primary")
    site.wait_for("#detail .note")
    assert site.text("#detail .note") == "The next wave tries it again, as ada decided."
    (decision,) = (each for each in site.campaign.read_decisions() if each.get("note") == "after the fix")
    assert {**decision, "at": ""} == {
        **{"format": 1, "at": "", "by": "ada", "table": HOSTILE, "decision": "retry", "note": "after the fix"},
    }
    assert site.see("page.title") == "lake-2026 – Hive to Delta"
    assert site.complaints() == []


def test_the_page_is_used_by_keyboard_and_follows_a_change(site: Site) -> None:
    site.log_in("ada")
    site.open("hive-to-delta/")
    site.wait_for(".tabulator-row:nth-child(5)")
    site.press("/")
    assert site.see("page.activeElement.id") == "search"
    site.press("ArrowDown")
    site.press("ArrowDown")
    names = site.see("[...page.querySelectorAll('.tabulator-row .open')].map(each => each.title)")
    # A list that is loaded while the key is pressed has the focus again a moment later.
    site.press_on(names[1], "Enter", "#detail[open]")
    site.wait_for("#detail[open] .detail-facts")
    assert site.text("#detail h2") == names[1]
    site.press("Escape")
    site.wait_for("#detail:not([open])")
    site.wait(f"page.activeElement.title === {json.dumps(names[1])}")
    stops = site.see("[...page.querySelectorAll('.tabulator-row *')].filter(each => each.tabIndex >= 0).length")
    assert stops == 0, "a list of thousands is one stop of the Tab key"
    site.see("page.querySelector('.tabulator-tableholder').focus()")
    site.press("ArrowDown")
    site.wait(f"page.activeElement.title === {json.dumps(names[0])}")
    site.campaign.write_state({"format": 1, "table": names[0], "state": "cut_over", "history": []})
    site.wait_for(".tabulator-row .pill.cut_over", "#share .cut_over")
    site.see("page.querySelector('.tabulator-col[tabulator-field=bytes]').focus()")
    site.press("Enter")
    site.wait("page.querySelector('.tabulator-col[tabulator-field=bytes]').ariaSort === 'descending'")
    assert site.complaints() == []


def test_all_tables_of_a_state_are_tried_again_at_once(site: Site) -> None:
    site.log_in("ada")
    site.open("hive-to-delta/")
    site.click("#legend [data-state=failed]")
    site.wait_for("#retry-all:not([hidden])")
    failed = site.see("page.querySelector('[data-state=failed] b').textContent")
    site.wait(f"page.getElementById('retry-all').textContent === 'Retry all {failed}'")
    site.click("#retry-all")
    site.type("#confirm input", "the bucket is back")
    site.click("#confirm .primary")
    site.wait("!page.getElementById('confirm').open")
    made = [each for each in site.campaign.read_decisions() if each.get("note") == "the bucket is back"]
    assert len({each["table"] for each in made}) == len(made) == int(failed)
    assert {(each["by"], each["decision"]) for each in made} == {("ada", "retry")}
    site.wait_for(".tabulator-row .pill.failed.pending")
    assert site.complaints() == []


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "dark")])
def test_it_fits_every_screen_in_light_and_dark(site: Site, width: int, scheme: str) -> None:
    site.log_in("vera")
    site.open("hive-to-delta/", width=width, scheme=scheme)
    site.wait_for(".tabulator-row:nth-child(5)", ".uplot canvas")
    assert site.see("page.documentElement.scrollWidth") == width
    dark = site.see("getComputedStyle(page.body).backgroundColor") == "rgb(14, 19, 27)"
    assert dark == (scheme == "dark")
    site.see("localStorage.setItem('theme', 'light')")
    site.open("hive-to-delta/", width=width, scheme=scheme)
    site.wait("getComputedStyle(page.body).backgroundColor === 'rgb(244, 246, 249)'")
    site.see("localStorage.removeItem('theme')")
    assert site.complaints() == []


def test_who_may_only_read_sees_the_tables_of_a_run_without_buttons(site: Site) -> None:
    wave = site.campaign.read_summary()["waves"][4]
    site.log_in("vera")
    site.open(f"hive-to-delta/?{urlencode({'dag_id': site.campaign.dag_id, 'run_id': wave['run_id']})}")
    site.wait(f"page.getElementById('count').textContent.endsWith('last changed by the run {wave['run_id']}')")
    assert (site.text("#count") or "").startswith(f"{wave['tables']} of 1,501 tables")
    assert site.text(".waves .current th") == wave["run_id"]
    site.click(".tabulator-row .open")
    site.wait_for("#detail .detail-facts")
    assert site.see("page.querySelectorAll('#detail .actions').length") == 0
    logs = site.see("[...page.querySelectorAll('#detail .links a')].map(link => link.href)")[:1]
    assert logs[0].startswith(site.address(f"dags/{site.campaign.dag_id}/runs/{wave['run_id']}/tasks/"))


def test_the_report_is_opened_from_the_page_and_has_no_part_in_the_session(site: Site) -> None:
    (site.campaign.root / "report.html").write_text("<p id='report'></p><script>document.title = 'ran'</script>")
    site.log_in("vera")
    site.open("hive-to-delta/")
    address = site.wait("[...page.querySelectorAll('#facts a')].find(each => each.href.endsWith('/report'))?.href")
    site.browser.open(address)
    site.wait("page.title === 'ran'")
    own = "(() => { try { return localStorage.length; } catch (error) { return error.name; } })()"
    assert site.browser.evaluate(own) == "SecurityError"


def test_who_has_no_rights_is_turned_away(site: Site) -> None:
    site.log_in("eve")
    site.open("plugin/hive-to-delta")
    said = site.wait("!page.getElementById('problem')?.hidden && page.getElementById('problem')?.textContent")
    assert said.startswith("There is no campaign that you may see.")
    assert site.see("page.getElementById('main').hidden") is True
    site.browser.call("Network.clearBrowserCookies")
    site.open("hive-to-delta/")
    assert site.wait("page.querySelector('#problem a')?.textContent") == "Log in"
    assert "/api/v2/auth/login?next=" in site.see("page.querySelector('#problem a').href")
