"""Parts for a domain of one's own: tools from typed functions, episodes, answers and judges.

docs/domain.md shows them in an example. `ProgramDomain` and `SolvedDomain` put them together; each
part also stands alone.
"""

import genenv_core.domains.kit.answers as answers
import genenv_core.domains.kit.judges as judges
from genenv_core.domains.kit.episode import Bounds, ToolEpisode, final_text
from genenv_core.domains.kit.kit_domain import Options, ProgramDomain, Solving, task
from genenv_core.domains.kit.levels import LevelledTasks, SeededTasks
from genenv_core.domains.kit.solved import SolvedDomain
from genenv_core.domains.kit.stateful import StatefulDomain
from genenv_core.domains.kit.tools import Tools, call

__all__ = [
    "Bounds",
    "LevelledTasks",
    "Options",
    "ProgramDomain",
    "SeededTasks",
    "SolvedDomain",
    "Solving",
    "StatefulDomain",
    "ToolEpisode",
    "Tools",
    "answers",
    "call",
    "final_text",
    "judges",
    "task",
]
