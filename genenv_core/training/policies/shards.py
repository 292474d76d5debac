"""Weights and optimizer of an update as safetensors, one file for each process with a part of them.

The files hold only trained weights: with LoRA the adapters, else all. Where each process has all of
them (one process, DDP) the first one writes; where they are sharded (FSDP2) each writes its own
part and reads the same part back, so resuming gathers nothing. No file is a pickle.
"""

# torch's tensors and optimizers have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from genenv_core.training.policies import ranks

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""Adam's state of a weight."""

Tensors = dict[str, torch.Tensor]


def trained(model: Any) -> Tensors:
    """Return name -> parameter of the weights that an update changes."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a tensor, or all of a tensor that is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return all of a tensor; every process must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def reshard(model: Any) -> None:
    """Let FSDP forget gathered weights.

    After a forward pass without a backward pass it would go on using them, although a step has
    changed its own part since.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def shard_names(stem: str, *, sharded: bool, processes: int) -> list[str]:
    """Return the names of the files that together hold the tensors of `stem`."""
    number = processes if sharded else 1
    return [f"{stem}-{index + 1:05d}-of-{number:05d}.safetensors" for index in range(number)]


def own_shard(stem: str, *, sharded: bool) -> tuple[str, bool]:
    """Return the file that this process reads, and whether it also writes it."""
    names = shard_names(stem, sharded=sharded, processes=ranks.count())
    return names[ranks.index() if sharded else 0], sharded or ranks.first()


def save_tensors(tensors: Tensors, folder: Path, stem: str, *, sharded: bool) -> None:
    """Write this process's part of the tensors, unless another process writes it."""
    name, writes = own_shard(stem, sharded=sharded)
    if writes:
        parts = {key: local(value.detach()).contiguous() for key, value in tensors.items()}
        save_file(parts, folder / name)


def load_tensors(folder: Path, stem: str, *, sharded: bool) -> Tensors:
    """Return what `save_tensors` wrote for this process."""
    return load_file(folder / own_shard(stem, sharded=sharded)[0])


def optimizer_tensors(model: Any, optimizer: Any) -> Tensors:
    """Return weights and Adam's moments by `kind/parameter name`.

    Raises ValueError for an optimizer with other moments.
    """
    found: Tensors = {}
    for name, parameter in trained(model).items():
        found[f"weight/{name}"] = parameter
        for moment, value in optimizer.state.get(parameter, {}).items():
            if moment not in _MOMENTS:
                raise ValueError(f"the optimizer keeps {moment!r} of {name}: not known here")
            found[f"{moment}/{name}"] = value
    return found


def restore_optimizer(model: Any, optimizer: Any, tensors: Tensors) -> None:
    """Put weights and moments back; the optimizer's other settings come from the request.

    Raises ValueError for tensors of another model.
    """
    parameters = trained(model)
    wanted = {f"weight/{name}" for name in parameters}
    found = {key for key in tensors if key.startswith("weight/")}
    if wanted != found:
        lost, foreign = sorted(wanted - found), sorted(found - wanted)
        raise ValueError(f"does not fit the model: missing {lost[:3]}, unknown {foreign[:3]}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            local(parameter).copy_(tensors[f"weight/{name}"])
    names = {parameter: name for name, parameter in parameters.items()}
    ordered = [p for group in optimizer.param_groups for p in group["params"]]
    state = optimizer.state_dict()
    state["state"] = {
        place: moments
        for place, parameter in enumerate(ordered)
        if (moments := _moments(parameter, names[parameter], tensors))
    }
    optimizer.load_state_dict(state)


def _moments(parameter: torch.Tensor, name: str, tensors: Tensors) -> Tensors:
    found: Tensors = {}
    for moment in _MOMENTS:
        value = tensors.get(f"{moment}/{name}")
        if value is None:
            continue
        if isinstance(parameter, DTensor) and moment != "step":
            value = DTensor.from_local(
                value.to(parameter.device),
                parameter.device_mesh,
                parameter.placements,
                run_check=False,
                shape=parameter.shape,
                stride=parameter.stride(),
            )
        found[moment] = value
    return found
