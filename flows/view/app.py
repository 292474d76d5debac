"""The web application of `genenv view`: routes to pages, answers as HTML, errors as pages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Template
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from flows.shown.json_text import json_text
from flows.view.guarding import Guard
from flows.view.meaning import meanings
from flows.view.pages import (
    Page,
    comparing,
    console,
    finding,
    heldout,
    lineage,
    rejected,
    run,
    runs,
    story,
    tasks,
    trace,
)
from flows.view.reading import Paged, Reader
from flows.view.shown import (
    brief,
    cell,
    colour_of,
    copying,
    linked,
    named,
    segment,
    setting,
    shown,
)
from genenv_core import __version__
from genenv_core.domains.tool_calls import as_read
from genenv_core.errors import GenenvError, NotFound
from genenv_core.hiding import visible
from genenv_core.report.page import templates
from genenv_core.report.words import spans
from genenv_core.storage.store.protocol import Store

SENT = Markup("<!-- sent -->")
"""A template writes this before it asks a slow question: the page then sends all that stands
before."""

RENEWING = "x-genenv-renewing"
"""Header of a request for the parts of a page that change while a stage is at work (live.js)."""

LOCAL = ("127.0.0.1", "localhost", "[::1]")

PAGES: dict[str, Callable[[Reader, Request], Page | Response]] = {
    "/": runs.page,
    "/runs/{run}": run.page,
    "/runs/{run}/findings": runs.findings,
    "/runs/{run}/tasks": tasks.page,
    "/runs/{run}/heldout": heldout.page,
    "/runs/{run}/rejections": rejected.page,
    "/runs/{run}/suspects": rejected.suspects,
    "/runs/{run}/lineage": lineage.page,
    "/runs/{run}/checkpoints/{policy}/{epoch}": lineage.checkpoint,
    "/runs/{run}/tasks/{task}": story.page,
    "/runs/{run}/traces/{trace}": trace.page,
    "/compare": comparing.page,
    "/find": finding.page,
    "/sql": console.page,
}


def application(
    store: Store, *, hosts: Sequence[str] = LOCAL, token: str | None = None
) -> Starlette:
    """Return the application over a store; a request may name it by any of `hosts`."""
    reader = Reader(store)
    environment = templates(
        "flows.view", shown=shown, cell=cell, linked=linked, url=segment, query=urlencode,
        as_read=as_read, data=_data, colour=colour_of, setting=setting,
        brief=brief, named=named, copying=copying, spans=spans, meanings=meanings,
    )  # fmt: skip
    environment.globals |= {
        "root": store.uri, "version": __version__, "console": _console, "sent": SENT,
    }  # fmt: skip

    def answered(page: Callable[[Reader, Request], Page | Response]) -> Callable[..., Response]:
        def endpoint(request: Request) -> Response:
            run = request.path_params.get("run")
            try:
                paged = Paged.of(request.query_params)
                made = page(reader if run is None else reader.of(run), request)
            except GenenvError as error:
                status = 404 if isinstance(error, NotFound) else 400
                made = Page("error.html.j2", "Not possible", {"message": str(error)}, status)
                paged = Paged()
            if isinstance(made, Response):
                return made
            template = environment.get_template(f"templates/{made.template}")
            path = request.url.path
            values = {"title": made.title, "path": path, "paged": paged, "of_run": run}
            values["renewing"] = RENEWING in request.headers
            values |= made.values
            if made.streams:
                return StreamingResponse(pieces(template, values), media_type="text/html")
            return HTMLResponse(template.render(values), made.status)

        return endpoint

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        reader.close()

    static = StaticFiles(directory=Path(__file__).parent / "static")
    return Starlette(
        routes=[
            *(Route(path, answered(page), methods=["GET"]) for path, page in PAGES.items()),
            Route("/health", _health, methods=["GET"]),
            Mount("/static", static),
            Route("/{rest:path}", answered(_missing)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
            Middleware(Guard, token=token),
        ],
        lifespan=lifespan,
    )


def pieces(template: Template, values: dict[str, Any]) -> Iterator[str]:
    """Yield a page in pieces as its template makes it; an error on the way goes to its end."""
    waiting: list[str] = []
    try:
        for part in template.generate(values):
            if part != SENT:
                waiting.append(part)
                continue
            yield "".join(waiting)
            waiting.clear()
    except GenenvError as error:
        waiting.append(Markup('<p class="bad" role="alert">{}</p>').format(visible(str(error))))
    yield "".join(waiting)


def _console(sql: str) -> str:
    """Return the address of the console with this question in its field."""
    return f"/sql?{urlencode({'q': sql})}"


def _health(request: Request) -> Response:
    return PlainTextResponse("ok")


def _missing(reader: Reader, request: Request) -> Page:
    raise NotFound(f"there is no page {request.url.path}: the runs are at /")


def _data(value: Any) -> Markup:
    """Return JSON that can stand in a script element of data."""
    text = json_text(value)
    return Markup(text.replace("<", "\\u003c"))
