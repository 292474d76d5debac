"""Two or more runs, or arms, beside each other: curves, results, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from flows.view.curves import Curves, curves, listed
from flows.view.intervals import t975
from flows.view.looks import short_names
from flows.view.pages import Page, require
from flows.view.reading import Panel, Reader, Row, parameter
from flows.view.shown import setting
from genenv_core.hiding import HIDDEN
from genenv_core.storage.records.differing import NO_SETTING, first_difference
from genenv_core.storage.sql.duck import name, text

MOST = 8
"""Most lines in one picture: as many as a person can tell apart."""

MOST_OF_ARMS = 200
"""Runs whose arms are compared at once; their names stand in the address."""

MOST_REASONS = 6
"""Parts of a stage that are named where it differs; `genenv diff` names all."""

BY = {"run": "a line a run", "arm": "a line an arm, the mean of its runs"}


def page(reader: Reader, request: Request) -> Page:
    """Return the runs of the address beside each other, or a list to choose from without two.

    Raises NotFound for a run that is not there, QueryError.
    """
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    by = parameter(request.query_params, "by", BY)
    most = MOST if by == "run" else MOST_OF_ARMS
    if names:
        known = f"SELECT run_id FROM runs WHERE run_id IN ({listed(names)})"
        require(reader, names, reader.panel("known", "Those that are there", known))
    if not 2 <= len(names) <= most:
        return _choosing(reader, names, most)
    few = names[:MOST]
    drawn = curves(reader, names, by)
    values = {
        "names": names, "by": by, "BY": BY, "curves": drawn, "compared": few,
        "short": short_names(few), "looks": {line.name: line.look for line in drawn.lines},
        "differences": reader.panel(
            "differences", "Where the configurations differ", _differing(few)
        ),
    }  # fmt: skip
    if by == "arm":
        arms = reader.panel("arms", "Gain on the test tasks by arm", _gains(names))
        mixed = reader.panel("mixed", "Settings that differ within an arm", _mixed(names))
        values |= {"arms": arms, "mixed": mixed, "warnings": _warnings(reader, names, drawn, mixed)}
    else:
        values |= {
            "results": reader.panel("results", "Results on the test tasks", _results(names)),
            "firsts": [(run, _first(reader, names[0], run)) for run in names[1:]],
        }
    return Page("compare.html.j2", "Compare runs" if by == "run" else "Compare arms", values)


def _choosing(reader: Reader, names: Sequence[str], most: int) -> Page:
    """Return the list of runs to choose from, and what is wrong with the present choice."""
    there = reader.panel(
        "choice", "Runs to choose from",
        "SELECT run_id, arm, domain, seed, epochs_planned, started_at FROM runs\n"
        "ORDER BY started_at DESC, run_id",
    )  # fmt: skip
    given = f" {len(names)} was given." if len(names) == 1 else f" {len(names)} were given."
    says = f"Choose two to {most} runs.{given if names else ''}"
    return Page("choose.html.j2", "Compare runs", {"there": there, "says": says, "names": names})


def _differing(names: list[str]) -> str:
    """Return the question for the settings that differ, a column for the value in each run."""
    values = ", ".join(
        f"max(value) FILTER (run_id = {text(run)}) AS {name(run)}" for run in names
    )  # fmt: skip
    return (
        f"SELECT setting, {values}\nFROM (\n{_settings(names)}\n)\n"
        f"GROUP BY setting HAVING count(DISTINCT value) > 1 OR count(*) < {len(names)}\n"
        "ORDER BY setting"
    )


def _mixed(names: list[str]) -> str:
    """Return the question for the settings, but the seed, that differ between runs of one arm."""
    return (
        "SELECT arm, setting, count(DISTINCT value) AS values,\n"
        "    count(*) AS runs_with_it, any_value(of_arm) AS runs\nFROM (\n"
        f"{_settings(names)}\n)\n"
        "JOIN (\n    SELECT arm, count(*) AS of_arm FROM runs\n"
        f"    WHERE run_id IN ({listed(names)}) GROUP BY arm\n) USING (arm)\n"
        "WHERE setting <> 'seed'\nGROUP BY arm, setting\n"
        "HAVING count(DISTINCT value) > 1 OR count(*) < any_value(of_arm)\nORDER BY arm, setting"
    )


def _settings(names: Sequence[str]) -> str:
    """Return the question for a row a run and setting; name and root of a run are no settings."""
    apart = ", ".join(text(one) for one in NO_SETTING)
    return (
        "    SELECT r.run_id, r.arm, substr(n.fullkey, 3) AS setting,\n"
        "        coalesce(CAST(n.atom AS VARCHAR), 'null') AS value\n"
        "    FROM runs AS r, json_tree(r.config) AS n\n"
        "    WHERE n.type NOT IN ('OBJECT', 'ARRAY')\n"
        f"        AND substr(n.fullkey, 3) NOT IN ({apart}) AND r.run_id IN ({listed(names)})"
    )


def _results(names: Sequence[str]) -> str:
    """Return the question for a row a run: its results, and how far it is from the first run.

    The difference is that of equal tasks at the last epoch that both runs have, by P(answer) where
    both have it; its interval is that of Student's t over the tasks. Runs with different test
    tasks have neither.
    """
    first = text(names[0])
    given = ", ".join(f"({text(run)}, {place})" for place, run in enumerate(names))
    return f"""WITH given AS (SELECT * FROM (VALUES {given}) AS v(run_id, place)),
tested AS (
    SELECT run_id, epoch, task_id, measure, value FROM test_results
    WHERE run_id IN ({listed(names)}) AND value IS NOT NULL
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
    SELECT s.run_id, s.epoch, t.task_id,
        max(t.value) FILTER (t.run_id = s.run_id)
            - max(t.value) FILTER (t.run_id = {first}) AS apart
    FROM shared AS s
    JOIN tested AS t ON t.epoch = s.epoch AND t.measure = s.measure
        AND t.run_id IN (s.run_id, {first})
    GROUP BY s.run_id, s.epoch, t.task_id
),
paired AS (
    SELECT run_id, epoch, count(apart) AS tasks, count(*) - count(apart) AS unshared,
        avg(apart) AS apart, stddev_samp(apart) / sqrt(count(apart)) AS se,
        count(apart) - 1 AS df
    FROM pairs GROUP BY run_id, epoch
),
ranged AS (
    SELECT *, se * {t975("df")} AS half FROM paired WHERE unshared = 0
)
SELECT r.apart AS minus_first, r.apart - r.half AS low, r.apart + r.half AS high,
    e.start, e.last, e.measure, e.last_epoch, p.epoch AS compared_at,
    p.tasks AS same_tasks, p.unshared AS other_tasks
FROM given AS g
LEFT JOIN ends AS e ON e.run_id = g.run_id
LEFT JOIN paired AS p ON p.run_id = g.run_id
LEFT JOIN ranged AS r ON r.run_id = g.run_id
ORDER BY g.place"""


def _gains(names: Sequence[str]) -> str:
    """Return the question for a row an arm: its gain, and how far it is from the first run's arm.

    Gains are those of the last epoch in which most runs of every arm were measured. The difference
    is that of equal seeds, and its interval that of Student's t over them; of two seeds it would be
    12.7 standard errors wide, and says nothing.
    """
    first = f"(SELECT arm FROM runs WHERE run_id = {text(names[0])})"
    return f"""WITH tested AS (
    SELECT g.run_id, g.arm, r.seed, g.measure, g.epoch, g.gain
    FROM test_gains AS g JOIN runs AS r ON r.run_id = g.run_id
    WHERE g.run_id IN ({listed(names)}) AND g.measure IN ('answer_probability', 'sampled')
),
arms AS (
    SELECT arm, count(*) AS runs FROM runs WHERE run_id IN ({listed(names)}) GROUP BY arm
),
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
paired AS (
    SELECT s.arm, count(*) AS same_seeds, avg(s.gain - f.gain) AS apart,
        stddev_samp(s.gain - f.gain) / sqrt(count(*)) AS se, count(*) - 1 AS df
    FROM seeds AS s JOIN seeds AS f ON f.arm = {first} AND f.seed = s.seed
    WHERE s.arm <> {first}
    GROUP BY s.arm
),
ranged AS (
    SELECT *, CASE WHEN df > 1 THEN se * {t975("df")} END AS half FROM paired
)
SELECT s.arm, avg(s.gain) AS gain, any_value(r.apart) AS minus_first,
    any_value(r.apart - r.half) AS low, any_value(r.apart + r.half) AS high,
    CASE WHEN s.arm <> {first} THEN coalesce(any_value(r.same_seeds), 0) END AS same_seeds,
    sum(s.runs) AS runs, any_value(s.epoch) AS compared_at, any_value(s.measure) AS measure
FROM seeds AS s LEFT JOIN ranged AS r ON r.arm = s.arm
GROUP BY s.arm
ORDER BY s.arm <> {first}, s.arm"""


def _first(reader: Reader, one: str, other: str) -> tuple[str, list[str]]:
    """Return the first stage of a run that differs from another's, and why, as `genenv diff`."""
    found = first_difference(reader.store, one, other)
    if found is None:
        return "no stage that both have differs", []
    reasons = [_without_secret(line) for line in found.reasons[:MOST_REASONS]]
    if left := len(found.reasons) - len(reasons):
        reasons.append(f"and {left} more: `genenv diff` names all")
    return f"{found.stage.replace('_', ' ')} of epoch {found.epoch}", reasons


def _without_secret(line: str) -> str:
    """Return a difference such as `rwr.steps 16 -> 12`, its values hidden for a secret."""
    named = line.split(" ", 1)[0]
    return f"{named} {HIDDEN}" if setting("?", named) == HIDDEN else line


def _warnings(reader: Reader, names: Sequence[str], drawn: Curves, mixed: Panel) -> list[str]:
    """Return what makes the mean of an arm something else than that of its method, as sentences."""
    warnings = list[str]()
    by_arm = dict[str, list[str]]()
    for row in mixed:
        by_arm.setdefault(row["arm"], []).append(row["setting"])
    warnings += [
        f"{arm} is the mean of runs whose settings differ in more than the seed: "
        f"{', '.join(settings[:MOST_REASONS])}{' and more' * (len(settings) > MOST_REASONS)}."
        for arm, settings in by_arm.items()
    ]
    runs = reader.panel("origins", "Branches", "SELECT run_id, arm, branch_of FROM runs")
    warnings += _related(names, runs.rows)
    for line in drawn.lines:
        fewer = [
            row for row in drawn.panel if row["line"] == line.name and row["runs"] != line.runs
        ]
        if fewer:
            epochs = ", ".join(str(row["epoch"]) for row in fewer[:MOST_REASONS])
            more = " and more" * (len(fewer) > MOST_REASONS)
            warnings.append(
                f"{line.name} has fewer than its {line.runs} runs in epochs {epochs}{more}: "
                "there the line is the mean of the others."
            )
    return warnings


def _related(names: Sequence[str], runs: Sequence[Row]) -> list[str]:
    """Return a sentence for each pair of runs of one arm that share epochs through branches."""
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
