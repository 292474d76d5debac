"""Updates with recorded gradients on one GPU, in turn in one process, as a run's worker has them.

`python -m tests.gpu.program_gpu FOLDER PRECISION [backwards]` is as
`tests.unit.training.program_cases` is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.unit.training.program_cases import compute_all

if __name__ == "__main__":
    folder, precision, *order = sys.argv[1:]
    compute_all(Path(folder), backwards=bool(order), device="cuda", precision=precision)
