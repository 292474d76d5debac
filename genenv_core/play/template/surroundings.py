"""What a chat template may use besides its messages: nothing that differs between runs of one key.

transformers gives a template today's date (`strftime_now`), and Jinja draws at random for it. In
genenv a date comes from the configuration, as a variable of the template, so it is in the keys.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

from genenv_core.config.sections.models import DATE

UNSAID = "no date is set"
"""The error of a template that asks for the date where no setting gives one."""

UNKNOWN = "the date is asked for in a form that is no text in the template"

_FORM = re.compile(rf"\b{DATE}\(\s*(['\"])(.*?)\1\s*\)")

_DRAWS = re.compile(r"\|\s*(random)\b|\b(lipsum)\s*\(")


@lru_cache(maxsize=64)
def answered(template: str, date: str | None) -> str:
    """Return a template with its own `strftime_now`, which returns one date.

    With None, the function raises an error: so only a template that really asks for the date fails,
    and not one whose own variable, such as `date_string`, gives it.
    """
    if DATE not in template:
        return template
    forms = [] if date is None else _forms(template)
    known = " or ".join(f"format == {form!r}" for form in forms) or "false"
    why = UNSAID if date is None else UNKNOWN
    check = f"{{%- if not ({known}) %}}{{{{- raise_exception({why!r}) }}}}{{% endif -%}}"
    says = "".join(_says(form, str(date)) for form in forms)
    # Jinja drops the newline, so the template still begins at the beginning of a line.
    return f"{{%- macro {DATE}(format) -%}}{check}{says}{{%- endmacro %}}\n{template}"


def draws(template: str) -> str | None:
    """Return the name of what a template draws at random with, None without it."""
    found = _DRAWS.search(template)
    return found and (found[1] or found[2])


def _forms(template: str) -> list[str]:
    """Return the forms of dates in a template, but no seconds since 1970: they need a time zone."""
    forms = {match[2] for match in _FORM.finditer(template)}
    return sorted(form for form in forms if "%s" not in form)


def _says(form: str, date: str) -> str:
    said = datetime.fromisoformat(date).strftime(form)
    return f"{{%- if format == {form!r} -%}}{{{{ {said!r} }}}}{{%- endif -%}}"
