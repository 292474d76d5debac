"""Finds which settings differ between runs of one arm, and which runs share one line.

A setting is any value of the configuration except the name and root of a run. Runs that differ only
in the seed are repetitions. Pages compare secrets, and do not show them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from flows.view.reading import Row
from flows.view.shown import SHORT, setting
from genenv_core.hiding import _SECRET as SECRET  # pyright: ignore[reportPrivateUsage]
from genenv_core.hiding import HIDDEN
from genenv_core.storage.records.differing import NO_SETTING
from genenv_core.storage.sql.duck import text

NAMED = 3
"""Most settings that a page names for a run: those with the rarest values."""

GROUPED = {"arm": "arm", "settings": "arm and its settings"}
"""What a line can be the mean of, with its name for people."""


def listed(runs: Sequence[str]) -> str:
    """Return names of runs as a list of texts in SQL."""
    return ", ".join(map(text, runs))


def among(runs: Sequence[str]) -> str:
    """Return the condition that a run of the table `runs` is one of these."""
    return f"run_id IN ({listed(runs)})"


def grouped(runs: Sequence[str], by: str) -> str:
    """Return the question with a row for each run: the name of its group, as `arm`.

    By `settings` the name has the arm, and the settings in which runs of this arm differ. Groups
    with equal names get numbers.
    """
    if by == "arm":
        return f"SELECT run_id, arm FROM runs WHERE {among(runs)}"
    return f"""WITH {differing(among(runs), "arm", "=")},
placed AS (
    SELECT run_id, concat_ws(' ', r.arm, a.words) AS name,
        dense_rank() OVER (PARTITION BY r.arm, a.words ORDER BY a.settings) AS place
    FROM runs AS r LEFT JOIN apart AS a USING (run_id)
    WHERE {among(runs)}
)
SELECT run_id, CASE WHEN max(place) OVER (PARTITION BY name) > 1
    THEN name || ' (' || place || ')' ELSE name END AS arm
FROM placed"""


def differing(runs: str, of: str, sign: str) -> str:
    """Return the beginning of a question about how the runs of an arm differ.

    `runs` is a condition on the table of runs. `of` names the columns that group the runs, such as
    `arm`. The question's tables: `said` has a row for each run and setting, `unlike` one for each
    setting that differs, and `apart` one for each run that differs, with `settings`, all of them,
    and `words`, at most three.
    """
    most = f"'{sign}' || {_shown('setting', 'value', 'words')}"
    return f"""said AS (
{settings(runs)}
),
unlike AS (
    SELECT {of}, setting, count(DISTINCT value) AS values, count(*) AS runs_with_it,
        any_value(of_arm) AS runs
    FROM said JOIN (
        SELECT {of}, count(DISTINCT run_id) AS of_arm FROM said GROUP BY {of}
    ) USING ({of})
    WHERE setting <> 'seed'
    GROUP BY {of}, setting
    HAVING count(DISTINCT value) > 1 OR count(*) < any_value(of_arm)
),
counted AS (
    SELECT run_id, setting || '=' || value AS exact, setting || {most} AS words,
        count(*) OVER (PARTITION BY {of}, setting, value) AS alike
    FROM said SEMI JOIN unlike USING ({of}, setting)
),
apart AS (
    SELECT run_id, list(exact ORDER BY exact) AS settings,
        array_to_string(list_sort(list(words ORDER BY alike, words)[:{NAMED}]), ', ')
            {more("count(*)", NAMED)} AS words
    FROM counted GROUP BY run_id
)"""


def settings(runs: str) -> str:
    """Return the question with a row for each run and setting, for runs that meet a condition.

    `value` is JSON, in which "4" is not 4; `words` are the same value as people write it.
    """
    apart = ", ".join(text(one) for one in NO_SETTING)
    return f"""    SELECT r.run_id, r.arm, r.domain, substr(n.fullkey, 3) AS setting,
        coalesce(CAST(n.atom AS VARCHAR), 'null') AS value,
        coalesce(n.atom ->> '$', 'null') AS words
    FROM runs AS r, json_tree(r.config) AS n
    WHERE n.type NOT IN ('OBJECT', 'ARRAY')
        AND substr(n.fullkey, 3) NOT IN ({apart}) AND {runs}"""


def set_apart(settings: Iterable[Row], domains: Mapping[str, str]) -> dict[str, str]:
    """Return how each run differs from the others of its domain, as `apart` of `differing` does.

    `settings` has a row for each setting: its name, then its value as JSON in each run, in the
    order of `domains`, None where a run lacks the setting.
    """
    found: dict[str, list[tuple[int, str]]] = {run: [] for run in domains}
    for row in settings:
        name, *values = row.values()
        for domain in dict.fromkeys(domains.values()):
            there = {
                run: value
                for run, value in zip(domains, values, strict=True)
                if domains[run] == domain
            }
            alike = Counter(there.values())
            if name == "seed" or len(alike) == 1:
                continue
            for run, value in there.items():
                if value is not None:
                    found[run].append((alike[value], f"{name} {_said(name, value)}"))
    return {run: _rarest(words) for run, words in found.items()}


def _rarest(words: Sequence[tuple[int, str]]) -> str:
    """Return the first few of the words, the rarest ones first, and how many more there are."""
    named = ", ".join(sorted(word for _, word in sorted(words)[:NAMED]))
    left = len(words) - NAMED
    return named + (f" and {left} more" if left > 0 else "")


def _said(name: str, value: str) -> str:
    """Return a JSON value in words, as `_shown` writes it in SQL."""
    read = json.loads(value)
    kept = setting(read, name)
    words = str(kept) if isinstance(read, str) or kept != read else value
    return words if len(words) <= SHORT else f"{words[:SHORT]}…"


def more(count: str, most: int) -> str:
    """Return SQL for the text behind the first few of a list: how many more there are."""
    return (
        f"|| CASE WHEN {count} > {most} THEN ' and ' || ({count} - {most}) || ' more' ELSE '' END"
    )


def _shown(name: str, value: str, words: str) -> str:
    """Return SQL for a setting's words on one line; a secret is hidden as in `shown.setting`."""
    secret = f"regexp_matches({name}, {text(SECRET.pattern)}, 'i')"
    plain = rf"regexp_replace({words}, '://[^/@\s]+@', '://{HIDDEN}@', 'g')"
    return (
        f"CASE WHEN {secret} AND {value} NOT IN ('null', '\"\"', 'false', '0') THEN '{HIDDEN}'\n"
        f"            WHEN length({plain}) > {SHORT} THEN left({plain}, {SHORT}) || '…'\n"
        f"            ELSE {plain} END"
    )
