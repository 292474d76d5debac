"""Updates with recorded gradients on one GPU, in the process of a launch.

`accelerate launch -m tests.gpu.program_gpu FOLDER PRECISION` is as
`tests.unit.training.program_cases` is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from accelerate import PartialState

from tests.unit.training.program_cases import compute_all


def main() -> None:
    """Compute all requests of the folder in turn."""
    PartialState()
    compute_all(Path(sys.argv[1]), device="cuda", precision=sys.argv[2])


if __name__ == "__main__":
    main()
