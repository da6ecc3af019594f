"""The app of the page in Airflow's API server: the files of the page, and a JSON API over the campaigns.

Every request is made as an Airflow user. Which campaigns a user sees, and whether decisions may be made, is asked of
Airflow for the DAG that the summary of a campaign names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Query, Request, Response, status
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflow_hive_to_delta.campaigns.states import STATES
from airflow_hive_to_delta.plugins.access import check_same_site
from airflow_hive_to_delta.plugins.campaigns import CampaignSite
from airflow_hive_to_delta.plugins.documents import Document
from airflow_hive_to_delta.plugins.settings import staging_roots, storage_connection
from airflow_hive_to_delta.plugins.table_query import SortColumn, TableQuery
from airflow_hive_to_delta.report.pages import render_campaign_page

PAGE = Path(__file__).parent / "page"
#: The colours and shapes that the page shares with the reports.
LOOK = Path(__file__).parent.parent / "report" / "templates"
#: Only files and answers of this server: whatever text got into the page could load and run nothing.
POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'self'"),
    )
)
#: A report is a file on a storage that others can write to. Whatever it is, it has no part in this server's session
#: and can ask for nothing.
REPORT_POLICY = "; ".join(
    (
        *("sandbox allow-scripts", "default-src 'none'", "script-src 'unsafe-inline'", "style-src 'unsafe-inline'"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'self'"),
    )
)
_TABLES_A_REQUEST = 200
_STATES = [{"name": name, "label": label} for name, label in STATES.items()]


class Decision(BaseModel):
    """What a person decides about tables of a campaign."""

    model_config = ConfigDict(extra="forbid")

    tables: Annotated[list[Annotated[str, Field(min_length=1, max_length=2_000)]], Field(min_length=1, max_length=200)]
    decision: Literal["retry", "exclude", "include"] | None = None
    priority: Annotated[int, Field(ge=-1_000, le=1_000)] | None = None
    note: Annotated[str, Field(max_length=1_000)] | None = None

    @model_validator(mode="after")
    def _decides_something(self) -> Decision:
        if self.decision is None and self.priority is None:
            raise ValueError("expected a decision or a priority")
        return self


@cache
def campaign_app() -> FastAPI:
    """The app for the campaigns under the staging roots of Airflow's configuration."""
    return create_app(CampaignSite(staging_roots(), storage_connection()))


def create_app(site: CampaignSite) -> FastAPI:
    """An app for the campaigns of a site."""
    app = FastAPI(title="Hive to Delta campaigns", openapi_url=None)

    @app.middleware("http")
    async def add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "same-origin"
        # An answer is kept by the browser alone, and only used again after the server has said that it still holds.
        response.headers["Cache-Control"] = "private, no-cache"
        return response

    @app.get("/")
    def show_page() -> HTMLResponse:
        # It has no data: a browser without a session is sent to Airflow's login when it asks for some.
        return HTMLResponse(render_campaign_page())

    @app.get("/api/campaigns")
    def list_campaigns(request: Request, user: GetUserDep, dag_id: str | None = None) -> Document:
        campaigns, problems = site.list_campaigns(request, user)
        found = [campaign.brief() for campaign in campaigns if dag_id is None or campaign.is_of(dag_id)]
        return {"campaigns": found, "roots": len(site.roots), "problems": problems, "states": _STATES}

    @app.get("/api/campaigns/{root}/{name}")
    def show_campaign(root: int, name: str, request: Request, user: GetUserDep) -> Response:
        return _answer(request, site.find(root, name, request, user).overview())

    @app.get("/api/campaigns/{root}/{name}/tables")
    def list_tables(
        root: int,
        name: str,
        request: Request,
        user: GetUserDep,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=_TABLES_A_REQUEST)] = 100,
        sort: SortColumn = "table",
        order: Literal["asc", "desc"] = "asc",
        state: Annotated[list[str], Query(max_length=len(STATES))] = [],  # noqa: B006
        owner: str | None = None,
        run: str = "",
        search: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        query = TableQuery(search, frozenset(state), owner, run, sort, order == "desc")
        return _answer(request, site.find(root, name, request, user).tables(query, offset, limit))

    @app.get("/api/campaigns/{root}/{name}/table")
    def show_table(root: int, name: str, table: str, request: Request, user: GetUserDep) -> Response:
        return _answer(request, site.find(root, name, request, user).table(table))

    @app.get("/api/campaigns/{root}/{name}/report")
    def show_report(root: int, name: str, request: Request, user: GetUserDep) -> HTMLResponse:
        page = site.find(root, name, request, user).report()
        return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY})

    @app.post("/api/campaigns/{root}/{name}/decisions", status_code=status.HTTP_201_CREATED)
    def decide(root: int, name: str, decision: Decision, request: Request, user: GetUserDep) -> Document:
        check_same_site(request)
        campaign = site.find(root, name, request, user)
        if not campaign.may_edit:
            raise HTTPException(status.HTTP_403_FORBIDDEN, f"You may not edit the DAG {campaign.dag_id}")
        made = decision.model_dump(exclude={"tables"}, exclude_none=True)
        campaign.decide(decision.tables, made, by=user.get_name())
        return {"decided": len(decision.tables)}

    @app.get("/static/look/{name}.css")
    def show_look(name: Literal["look", "dark"]) -> FileResponse:
        return FileResponse(LOOK / f"{name}.css", media_type="text/css")

    app.mount("/static", StaticFiles(directory=PAGE / "static"), name="static")
    return app


def _answer(request: Request, content: Document) -> Response:
    """A JSON answer, or none when the browser has the same one already."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
    return Response(body, media_type="application/json", headers={"ETag": tag})
