"""What a chat template may ask besides its messages: nothing in which two runs of one key differ.

transformers gives a template today's date (`strftime_now`), and Jinja draws at random for it. Here
a date comes from the configuration, as a variable of the template, so it is in the keys.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

from genenv_core.config.sections.models import DATE

UNSAID = "no date is set"
"""What a template's question for the date raises where no date is set."""

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
    forms = [] if date is None else _forms(template)
    known = " or ".join(f"format == {form!r}" for form in forms) or "false"
    why = UNSAID if date is None else UNKNOWN
    check = f"{{%- if not ({known}) %}}{{{{- raise_exception({why!r}) }}}}{{% endif -%}}"
    says = "".join(_says(form, str(date)) for form in forms)
    # Jinja drops the newline, so the template still begins at the beginning of a line.
    return f"{{%- macro {DATE}(format) -%}}{check}{says}{{%- endmacro %}}\n{template}"


def draws(template: str) -> str | None:
    """Return what a template draws at random with, None where it does not."""
    found = _DRAWS.search(template)
    return found and (found[1] or found[2])


def _forms(template: str) -> list[str]:
    """Return the forms in which a template asks; seconds since 1970 depend on the time zone."""
    forms = {match[2] for match in _FORM.finditer(template)}
    return sorted(form for form in forms if "%s" not in form)


def _says(form: str, date: str) -> str:
    said = datetime.fromisoformat(date).strftime(form)
    return f"{{%- if format == {form!r} -%}}{{{{ {said!r} }}}}{{%- endif -%}}"
