"""What a chat template may ask besides its messages: nothing in which two runs of one key differ.

transformers tells a template today's date (`strftime_now`), and Jinja draws at random for it. Here
a date comes from the configuration, as a variable of the template, so it is in the keys.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

DATE = "strftime_now"
"""The function that tells a template today's date, and the variable that says which date."""

UNSAID = "no date is set"
"""What a template's question for the date raises where none is set."""

UNKNOWN = "the date is asked for in a form that is no text in the template"

_FORM = re.compile(rf"\b{DATE}\(\s*(['\"])(.*?)\1\s*\)")

_DRAWS = re.compile(r"\|\s*(random)\b|\b(lipsum)\s*\(")


@lru_cache(maxsize=64)
def answered(template: str, date: str | None) -> str:
    """Return a template with a `strftime_now` of its own, which knows one date.

    With None, the function raises an error: a template is refused only where it really asks, and
    not where a variable of its own, such as `date_string`, has said the date.
    """
    if DATE not in template:
        return template
    moment = None if date is None else datetime.fromisoformat(date)
    body = "" if moment is None else "".join(_says(form, moment) for form in _forms(template))
    why = UNSAID if moment is None else UNKNOWN
    known = " or ".join(f"format == {form!r}" for form in _forms(template)) or "false"
    if moment is None:
        known = "false"
    check = f"{{%- if not ({known}) %}}{{{{- raise_exception({why!r}) }}}}{{% endif -%}}"
    # Jinja drops the newline, so the template still begins at the beginning of a line.
    return f"{{%- macro {DATE}(format) -%}}{check}{body}{{%- endmacro %}}\n{template}"


def draws(template: str) -> str | None:
    """Return what a template draws at random with, None where it does not."""
    found = _DRAWS.search(template)
    return found and (found[1] or found[2])


def _forms(template: str) -> list[str]:
    return sorted({match[2] for match in _FORM.finditer(template)})


def _says(form: str, moment: datetime) -> str:
    said = moment.strftime(form)
    return f"{{%- if format == {form!r} -%}}{{{{ {said!r} }}}}{{%- endif -%}}"
