"""Tasks of a run as an environment that others' programs play.

`passports` reads the tasks, `sources` copies the code that plays them, `writing` makes the folder.
`playing`, `openenv_app` and `verifiers_tasks` travel in it and run where genenv is not installed,
and so does a part of `harbor`.
"""

from typing import Literal

EnvironmentFormat = Literal["openenv", "verifiers", "harbor"]
"""The framework whose programs are to play the tasks."""
