"""Two or more runs, or groups of runs, side by side: curves, results, and where they differ.

A group holds the runs of an arm, or those of an arm that have the same settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from flows.view.curves import ENOUGH, MOST, Curves, curves
from flows.view.grouping import GROUPED, among, differing, grouped, more, set_apart, settings
from flows.view.intervals import paired
from flows.view.looks import short_names
from flows.view.pages import Page, require
from flows.view.reading import Reader, Row, parameter
from flows.view.shown import setting
from genenv_core.hiding import HIDDEN
from genenv_core.storage.records.differing import first_difference
from genenv_core.storage.sql.duck import name, text

MOST_GROUPED = 200
"""Most runs whose groups a page compares; their names stand in the address."""

MOST_REASONS = 6
"""Most parts of a stage that the page names where it differs; `genenv diff` names all."""

MOST_VALUES = 5
"""Most values of a setting that the page names for a group."""

VERDICTS = "bool_and(measure <> 'answer_probability')"
"""The condition in SQL for a group of pairs: its differences are those of verdicts on tasks."""

DIFFERENCES = "Where the configurations differ"

BY = {
    "run": "a line a run",
    "arm": "a line an arm, the mean of its runs",
    "settings": "a line an arm and its settings, the mean of its runs",
}


def page(reader: Reader, request: Request) -> Page:
    """Return the runs of the address side by side, or a list to choose from without two.

    The number of names in the address decides before any question about the runs. Raises NotFound
    for a run that is not there, and QueryError.
    """
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    by = parameter(request.query_params, "by", BY)
    most = MOST_GROUPED if by in GROUPED else MOST
    if not 2 <= len(names) <= most:
        return _choosing(reader, names, most)
    members = reader.panel("members", "The runs of each line", _members(names, by))
    require(reader, names, members)
    drawn = curves(reader, names, by)
    values = {
        "names": names, "by": by, "BY": BY, "grouped": by in GROUPED, "curves": drawn,
        "short": short_names(names), "looks": {line.name: line.look for line in drawn.lines},
    }  # fmt: skip
    if by in GROUPED:
        groups = list(dict.fromkeys(row["arm"] for row in members))
        values |= _of_groups(reader, names, by, groups)
        values |= {"members": members, "each": GROUPED[by], "fewer": _fewer(drawn)}
        values |= _mixtures(reader, names) if by == "arm" else {}
    else:
        of_runs = _of_runs(reader, names)
        domains = {row["run_id"]: row["domain"] for row in members}
        in_order = {run: domains[run] for run in names}
        values |= {**of_runs, "told": set_apart(of_runs["differences"], in_order)}
    title = f"Compare {'arms and settings' if by == 'settings' else f'{by}s'}"
    return Page("compare.html.j2", title, values)


def _of_runs(reader: Reader, names: list[str]) -> dict[str, Any]:
    """Return the page's values about each run by itself."""
    return {
        "compared": names,
        "differences": reader.panel("differences", DIFFERENCES, _differing(names)),
        "results": reader.panel("results", "Results on the test tasks", _results(names)),
        "firsts": [(run, _first(reader, names[0], run)) for run in names[1:]],
    }


def _of_groups(reader: Reader, names: list[str], by: str, groups: list[str]) -> dict[str, Any]:
    """Return the page's values about groups of runs."""
    return {
        "compared": groups,
        "differences": reader.panel(
            "differences", DIFFERENCES, _differing_groups(names, by, groups)
        ),
        "arms": reader.panel("arms", f"Gain on the test tasks by {by}", _gains(names, by)),
        "related": _related(names, _origins(reader, names, by)),
    }  # fmt: skip


def _mixtures(reader: Reader, names: list[str]) -> dict[str, Any]:
    """Return a sentence for each arm whose runs are no repetitions, with what they differ in."""
    mixed = reader.panel("mixed", "Settings that differ within an arm", _mixed(names))
    by_arm = dict[str, list[str]]()
    for row in mixed:
        by_arm.setdefault(row["arm"], []).append(row["setting"])
    mixtures = [
        f"{arm} is the mean of runs whose settings differ in more than the seed: "
        f"{', '.join(unlike[:MOST_REASONS])}{' and more' * (len(unlike) > MOST_REASONS)}."
        for arm, unlike in by_arm.items()
    ]
    by_settings = [*(("run", name) for name in names), ("by", "settings")]
    return {"mixed": mixed, "mixtures": mixtures, "by_settings": by_settings}


def _choosing(reader: Reader, names: Sequence[str], most: int) -> Page:
    """Return the list of runs to choose from, and what is wrong with the present choice.

    Raises NotFound for a chosen run that is not there.
    """
    there = reader.panel(
        "choice", "Runs to choose from",
        "SELECT run_id, arm, domain, seed, epochs_planned, started_at FROM runs\n"
        "ORDER BY started_at DESC, run_id",
    )  # fmt: skip
    if not there.truncated:
        require(reader, names, there)
    given = f" {len(names)} was given." if len(names) == 1 else f" {len(names)} were given."
    says = f"Choose two to {most} runs.{given if names else ''}"
    if len(names) > most == MOST:
        says += f" Up to {MOST_GROUPED} are compared by their arms, or by arms and settings."
    return Page("choose.html.j2", "Compare runs", {"there": there, "says": says, "names": names})


def _differing(names: list[str]) -> str:
    """Return the question for the settings that differ, with a column for each run's value."""
    values = ", ".join(
        f"max(value) FILTER (run_id = {text(run)}) AS {name(run)}" for run in names
    )  # fmt: skip
    return (
        f"SELECT setting, {values}\nFROM (\n{settings(among(names))}\n)\n"
        f"GROUP BY setting HAVING count(DISTINCT value) > 1 OR count(*) < {len(names)}\n"
        "ORDER BY setting"
    )


def _differing_groups(names: Sequence[str], by: str, groups: Sequence[str]) -> str:
    """Return the question for the settings in which runs differ, with a column for each group.

    A run without a setting counts as one whose value is `unset`.
    """
    columns = ", ".join(
        f"any_value(words) FILTER (arm = {text(one)}) AS {name(one)}" for one in groups
    )
    return f"""WITH grouped AS (
{grouped(names, by)}
),
configured AS (
{settings(among(names))}
),
found AS (
    SELECT DISTINCT g.arm, s.setting, coalesce(c.value, 'unset') AS value
    FROM grouped AS g CROSS JOIN (SELECT DISTINCT setting FROM configured) AS s
    LEFT JOIN configured AS c ON c.run_id = g.run_id AND c.setting = s.setting
),
valued AS (
    SELECT arm, setting, count(*) AS many, array_to_string(
        list(value ORDER BY try_cast(value AS DOUBLE), value)[:{MOST_VALUES}], ', '
    ) {more("count(*)", MOST_VALUES)} AS words
    FROM found GROUP BY arm, setting
)
SELECT setting, {columns}
FROM valued
GROUP BY setting HAVING max(many) > 1 OR count(DISTINCT words) > 1
ORDER BY setting"""


def _members(names: Sequence[str], by: str) -> str:
    """Return the question with a row for each existing run: its group and seed, or its domain."""
    if by not in GROUPED:
        return f"SELECT run_id, domain FROM runs WHERE {among(names)}"
    return (
        f"SELECT g.arm, g.run_id, r.seed\nFROM (\n{grouped(names, by)}\n) AS g\n"
        "JOIN runs AS r ON r.run_id = g.run_id\nORDER BY g.arm, r.seed, g.run_id"
    )


def _mixed(names: Sequence[str]) -> str:
    """Return the question for the settings, except the seed, that differ within one arm."""
    return (
        f"WITH {differing(among(names), 'arm', '=')}\n"
        "SELECT arm, setting, values, runs_with_it, runs FROM unlike ORDER BY arm, setting"
    )


def _results(names: Sequence[str]) -> str:
    """Return the question with a row for each run: its results, and how far it is from the first.

    The difference is over equal tasks at the last epoch that both runs have, by P(answer) where
    both have it. Its interval is over the tasks, as in `test_gains`. Runs with different test tasks
    have neither.
    """
    first = text(names[0])
    given = ", ".join(f"({text(run)}, {place})" for place, run in enumerate(names))
    return f"""WITH given AS (SELECT * FROM (VALUES {given}) AS v(run_id, place)),
tested AS (
    SELECT run_id, epoch, task_id, measure, value FROM test_results
    WHERE {among(names)} AND value IS NOT NULL
),
able AS (
    SELECT run_id, bool_or(measure = 'answer_probability') AS has_answer
    FROM tested GROUP BY run_id
),
chosen AS (
    SELECT a.run_id, CASE WHEN a.has_answer AND coalesce(f.has_answer, true)
        THEN 'answer_probability' ELSE 'sampled' END AS measure
    FROM able AS a LEFT JOIN able AS f ON f.run_id = {first}
),
means AS (
    SELECT t.run_id, t.measure, t.epoch, avg(t.value) AS value
    FROM tested AS t JOIN chosen AS c ON c.run_id = t.run_id AND c.measure = t.measure
    GROUP BY t.run_id, t.measure, t.epoch
),
ends AS (
    SELECT run_id, measure, max(value) FILTER (epoch = 0) AS start,
        arg_max(value, epoch) AS last, max(epoch) AS last_epoch
    FROM means GROUP BY run_id, measure
),
shared AS (
    SELECT m.run_id, m.measure, max(m.epoch) AS epoch
    FROM means AS m
    SEMI JOIN tested AS f
        ON f.run_id = {first} AND f.epoch = m.epoch AND f.measure = m.measure
    WHERE m.run_id <> {first}
    GROUP BY m.run_id, m.measure
),
pairs AS (
    SELECT s.run_id, s.epoch, t.task_id, s.measure,
        max(t.value) FILTER (t.run_id = s.run_id)
            - max(t.value) FILTER (t.run_id = {first}) AS apart
    FROM shared AS s
    JOIN tested AS t ON t.epoch = s.epoch AND t.measure = s.measure
        AND t.run_id IN (s.run_id, {first})
    GROUP BY s.run_id, s.epoch, t.task_id, s.measure
),
paired AS (
{paired("pairs", "run_id, epoch", verdicts=VERDICTS)}
),
alike AS (SELECT * FROM paired WHERE others = 0)
SELECT a.apart AS minus_first, a.low, a.high,
    e.start, e.last, e.measure, e.last_epoch, p.epoch AS compared_at,
    p.same AS same_tasks, p.others AS other_tasks
FROM given AS g
LEFT JOIN ends AS e ON e.run_id = g.run_id
LEFT JOIN paired AS p ON p.run_id = g.run_id
LEFT JOIN alike AS a ON a.run_id = g.run_id
ORDER BY g.place"""


def _gains(names: Sequence[str], by: str) -> str:
    """Return the question with a row for each group: its gain, and how far it is from the first.

    Gains are those of the last epoch in which most runs of every group have a measurement. The
    difference is over equal seeds, and its interval is that of Student's t over them. Over two
    seeds it would be 12.7 standard errors wide, and say nothing.
    """
    first = f"(SELECT arm FROM grouped WHERE run_id = {text(names[0])})"
    return f"""WITH grouped AS (
{grouped(names, by)}
),
tested AS (
    SELECT g.run_id, o.arm, r.seed, g.measure, g.epoch, g.gain
    FROM test_gains AS g
    JOIN grouped AS o ON o.run_id = g.run_id
    JOIN runs AS r ON r.run_id = g.run_id
    WHERE g.{among(names)} AND g.measure IN ('answer_probability', 'sampled')
),
arms AS (SELECT arm, count(*) AS runs FROM grouped GROUP BY arm),
-- The measure with less noise comes first in the alphabet.
measured AS (
    SELECT t.measure, t.epoch
    FROM (
        SELECT arm, measure, epoch, count(*) AS runs FROM tested GROUP BY arm, measure, epoch
    ) AS t JOIN arms AS a ON a.arm = t.arm AND 2 * t.runs > a.runs
    GROUP BY t.measure, t.epoch HAVING count(*) = (SELECT count(*) FROM arms)
    ORDER BY t.measure, t.epoch DESC LIMIT 1
),
seeds AS (
    SELECT t.arm, t.seed, t.measure, t.epoch, count(*) AS runs, avg(t.gain) AS gain
    FROM tested AS t JOIN measured AS m ON m.measure = t.measure AND m.epoch = t.epoch
    GROUP BY t.arm, t.seed, t.measure, t.epoch
),
pairs AS (
    SELECT s.arm, s.gain - f.gain AS apart
    FROM seeds AS s JOIN seeds AS f ON f.arm = {first} AND f.seed = s.seed
    WHERE s.arm <> {first}
),
paired AS (
{paired("pairs", "arm", ENOUGH)}
)
SELECT s.arm, avg(s.gain) AS gain, any_value(p.apart) AS minus_first,
    any_value(p.low) AS low, any_value(p.high) AS high,
    CASE WHEN s.arm <> {first} THEN coalesce(any_value(p.same), 0) END AS same_seeds,
    sum(s.runs) AS runs, any_value(s.epoch) AS compared_at, any_value(s.measure) AS measure
FROM seeds AS s LEFT JOIN paired AS p ON p.arm = s.arm
GROUP BY s.arm
ORDER BY s.arm <> {first}, s.arm"""


def _first(reader: Reader, one: str, other: str) -> tuple[str, list[str]]:
    """Return the first stage where a run differs from another, and why, as `genenv diff` does."""
    found = first_difference(reader.store, one, other)
    if found is None:
        return "no stage that both have differs", []
    reasons = [_without_secret(line) for line in found.reasons[:MOST_REASONS]]
    if left := len(found.reasons) - len(reasons):
        reasons.append(f"and {left} more: `genenv diff` names all")
    return f"{found.stage.replace('_', ' ')} of epoch {found.epoch}", reasons


def _without_secret(line: str) -> str:
    """Return a difference such as `rwr.steps 16 -> 12`, with a secret's values hidden."""
    named = line.split(" ", 1)[0]
    return f"{named} {HIDDEN}" if setting("?", named) == HIDDEN else line


def _fewer(drawn: Curves) -> list[str]:
    """Return a sentence for each line that is the mean of fewer runs in some epochs."""
    warnings = list[str]()
    for line in drawn.lines:
        fewer = [
            row for row in drawn.panel if row["line"] == line.name and row["runs"] != line.runs
        ]
        if fewer:
            epochs = ", ".join(str(row["epoch"]) for row in fewer[:MOST_REASONS])
            others = " and more" * (len(fewer) > MOST_REASONS)
            warnings.append(
                f"{line.name} has fewer than its {line.runs} runs in epochs {epochs}{others}: "
                "there the line is the mean of the others."
            )
    return warnings


def _origins(reader: Reader, names: Sequence[str], by: str) -> list[Row]:
    """Return each run of the root, its group if it has one, and the run that it branches from."""
    asked = (
        f"SELECT r.run_id, g.arm, r.branch_of\nFROM runs AS r LEFT JOIN (\n{grouped(names, by)}\n"
        ") AS g ON g.run_id = r.run_id"
    )
    return reader.panel("origins", "Branches", asked).rows


def _related(names: Sequence[str], runs: Sequence[Row]) -> list[str]:
    """Return a sentence for each pair of runs in one group that share epochs through branches."""
    by_name = {row["run_id"]: row for row in runs}

    def line_of(run: str) -> list[str]:
        """Return a run and all that it branches off from."""
        found = [run]
        while (origin := by_name.get(found[-1], {}).get("branch_of")) and origin not in found:
            found.append(origin)
        return found

    chosen = {run: line_of(run) for run in names}
    sentences = list[str]()
    for place, run in enumerate(names):
        for other in names[place + 1 :]:
            arm = by_name[run]["arm"]
            if arm != by_name[other]["arm"] or not set(chosen[run]) & set(chosen[other]):
                continue
            if run in chosen[other]:
                pair = f"{run} and its own branch {other}"
            elif other in chosen[run]:
                pair = f"{other} and its own branch {run}"
            else:
                pair = f"{run} and {other}, branches of one run"
            sentences.append(
                f"{arm} is the mean of {pair}: they share epochs, so they are not two independent "
                "runs, and the interval is too narrow."
            )
    return sentences[:MOST_REASONS]
