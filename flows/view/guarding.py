"""Decides who may ask the pages, and what a browser may do with them.

The server listens on this machine alone, and on another `--host` asks for a token. A page of
another origin must not read or drive it: the server refuses a name that resolves to 127.0.0.1 by
its Host header, and a request that another origin starts by its Origin header.
"""

from __future__ import annotations

import secrets
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from genenv_core.canonical import sha256

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
"""Content security policy: nothing from other hosts, no script or style in the markup."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}

METHODS = ("GET", "HEAD")
COOKIE = "genenv-view"
TOKEN = "token"
"""The parameter with the token in the first address; later requests have a cookie."""


class Guard:
    """Middleware that refuses requests of other origins and strangers, and sets `HEADERS`."""

    def __init__(self, app: ASGIApp, token: str | None = None) -> None:
        """Guard an application; with a token, only requests that have it may pass."""
        self._app = app
        self._token = token
        # Cookies are of a host, whatever the port: two servers on it keep theirs apart.
        self._cookie = f"{COOKIE}-{sha256((token or '').encode())[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, marked)

    def _refused(self, request: Request) -> Response | None:
        """Return the answer that refuses a request, None for one to pass on."""
        if request.method not in METHODS:
            return PlainTextResponse("this page is read-only\n", 405)
        if not _own(request):
            return PlainTextResponse("another page started this request: open it yourself\n", 403)
        if self._token is None:
            return None
        if _same(request.cookies.get(self._cookie), self._token):
            return None
        if _same(request.query_params.get(TOKEN), self._token):
            given = parse_qsl(request.url.query, keep_blank_values=True)
            rest = [pair for pair in given if pair[0] != TOKEN]
            path = quote("/" + request.scope["path"].lstrip("/"))
            answer = RedirectResponse(path + (f"?{urlencode(rest)}" if rest else ""), 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        return PlainTextResponse(
            "a token is needed: open the address that `genenv view` printed\n", 401
        )


def _own(request: Request) -> bool:
    """Return whether a request comes from a page of this server, or from a person."""
    origin = request.headers.get("origin")
    if origin is not None:
        return origin == f"{request.url.scheme}://{request.headers.get('host', '')}"
    elsewhere = request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
    # A link of another page may be followed; what it embeds, or sends, may not.
    return not elsewhere or (request.headers.get("sec-fetch-mode") == "navigate")


def _same(given: str | None, token: str) -> bool:
    return given is not None and secrets.compare_digest(given.encode(), token.encode())
