"""What a newcomer reads first: its DAG is one that is run, its commands exist, and its links lead somewhere."""

from __future__ import annotations

import re

import pytest

from tests.support.project import PROJECT

README = PROJECT / "README.md"
#: The pages outside of docs/, whose links no site builder checks.
ROOT_PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / ".github").rglob("*.md")])


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_dag_of_the_readme_is_the_example_that_is_run() -> None:
    (dag,) = python_blocks()
    assert (PROJECT / "dags_examples" / "one_database.py").read_text().endswith(dag)


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len(README.read_text().splitlines()) <= 80


@pytest.mark.parametrize("page", ROOT_PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [*ROOT_PAGES, PROJECT / ".github/workflows/ci.yml"], ids=lambda page: page.name)
def test_make_targets_exist(page) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^ +|run: )make ([a-z0-9-]+)", page.read_text(), re.MULTILINE))
    assert named <= targets
