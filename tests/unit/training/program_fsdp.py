"""`program_cases` under FSDP2 with gloo on CPUs, which accelerate's own configuration refuses.

accelerate shards only when the processes count as GPUs. This module makes them count so, and then
accelerate runs its whole FSDP2 path on CPU tensors.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import DistributedType

from tests.unit.training.program_cases import compute_all

_original = PartialState.__init__


def _as_gpus(self: Any, *args: Any, **options: Any) -> None:
    _original(self, *args, **options)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU


def main() -> None:
    """Compute all requests of the folder, sharded."""
    PartialState.__init__ = _as_gpus
    PartialState(cpu=True, backend="gloo")
    compute_all(Path(sys.argv[1]), strategy="fsdp2")


if __name__ == "__main__":
    main()
