"""Renders the page on the findings, and gives the same as plain values for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from genenv_core.evidence.finding import Finding
from genenv_core.report.page import templates


def render(
    findings: Sequence[Finding], *, setting: str, pages: Sequence[str], now: datetime, version: str
) -> str:
    """Return the page: one HTML file without script and without network.

    `setting` says in words what the comparisons played. `pages` are their folders beside the page.
    `now` is in UTC.
    """
    template = templates("genenv_core.evidence").get_template("findings.html.j2")
    return template.render(
        findings=findings, setting=setting, pages=pages, now=now, version=version
    )


def as_values(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the findings as plain JSON values, without their charts."""
    return [
        {key: value for key, value in asdict(finding).items() if key != "charts"}
        for finding in findings
    ]
