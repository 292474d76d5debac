"""The engine vllm, and how the work is carried out."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.endpoint import EndpointAsking
from genenv_core.config.sections.section import Section
from genenv_core.machine.named_secrets import ADDRESS
from genenv_core.machine.wrong_values import worded

Device = Literal["cpu", "cuda"]
EngineKind = Literal["transformers", "vllm"]
"""Each is a package of `genenv_core.engines`."""


OWN_FLAGS = (
    "--model",
    "--served-model-name",
    "--host",
    "--port",
    "--dtype",
    "--tensor-parallel-size",
    "--max-model-len",
    "--logprobs-mode",
    "--generation-config",
    "--api-key",
    "--trust-remote-code",
    "--config",
)
"""Arguments that a configuration may not give, because genenv sets them itself or keeps them out;
a file of `--config` could give all of them."""


class VllmConfig(Section):
    """What decides the numbers of the engine vllm, so it is in the keys of stages that sample."""

    version: str = Field(
        default="0.31.0",
        pattern=worded(r"^[0-9]+\.[0-9]+[0-9A-Za-z.]*$", "a version by its numbers, as in 0.31.0"),
    )
    """Version of vLLM; genenv refuses a server of another one. A build's label does not count."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Arithmetic of the server; auto goes by the checkpoint, but vLLM takes bfloat16 for float32 on
    an accelerator."""
    max_model_len: int | None = Field(default=None, ge=2, le=10_000_000)
    """Longest sequence, prompt included, in tokens; None: what the model allows."""
    tensor_parallel: int = Field(default=1, ge=1, le=1024)
    """Accelerators that one server uses together."""
    arguments: tuple[str, ...] = ()
    """More arguments of the server, such as --quantization=fp8; for a server that we start."""

    @model_validator(mode="after")
    def _foreign(self) -> Self:
        for argument in self.arguments:
            flag = argument.partition("=")[0].replace("_", "-")
            # The server takes the beginning of a flag for the whole.
            own = [one for one in OWN_FLAGS if len(flag) > 2 and one.startswith(flag)]
            if own:
                raise ValueError(
                    f"compute.vllm.arguments {argument!r}: genenv sets {own[0]} itself: remove it"
                )
        return self


class VllmServing(Section):
    """How genenv runs the engine vllm. No field changes a result, so no stage key holds them."""

    urls: tuple[str, ...] = ()
    """Servers that run elsewhere, such as http://gpu-1:8000, which share the requests. Empty: each
    stage starts a server of its own, and ends it."""
    python: str | None = Field(default=None, min_length=1)
    """Interpreter with vLLM that starts our server; None: that of GENENV_VLLM_PYTHON, else the one
    that runs genenv. vLLM lives in an environment of its own, because of its many pins."""
    concurrency: int = Field(default=256, ge=1, le=100_000)
    """Completions asked of one server at the same time."""
    start_seconds: float = Field(default=900.0, ge=1, le=86_400)
    """Longest wait for a server to answer after its start; large models load for minutes."""
    stop_seconds: float = Field(default=15.0, ge=0, le=3600)
    """How long a server may take to end before genenv kills it."""
    request_seconds: float = Field(default=1800.0, ge=0.1, le=86_400)
    """Longest wait for the answer to one request."""
    stall_seconds: float = Field(default=60.0, ge=0.1, le=86_400)
    """How long a server with requests at work may send no answer before genenv asks it for one
    token; when that takes as long again, the server hangs: genenv kills its own and starts it anew,
    and leaves one at a URL out until it answers."""
    stage_seconds: float = Field(default=86_400.0, ge=1, le=2_592_000)
    """Longest life of the engine in one stage."""
    lost_seconds: float = Field(default=300.0, ge=0, le=86_400)
    """How long all URLs may be silent before the stage fails."""
    retries: int = Field(default=5, ge=0, le=100)
    """Further tries of one request after an answer 5xx, a lost connection or a time-out."""
    backoff_seconds: float = Field(default=0.5, ge=0, le=600)
    """Pause before the first further try; it doubles with each, up to 30 seconds."""
    restarts: int = Field(default=3, ge=0, le=1000)
    """How often a stage starts its own server anew before it fails."""

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        for url in self.urls:
            if not re.fullmatch(ADDRESS, url):
                raise ValueError(
                    f"execution.vllm.urls {url!r} is no address like http://host:8000 (a key goes "
                    "into GENENV_VLLM_API_KEY, never into the address)"
                )
        if len(set(self.urls)) < len(self.urls):
            raise ValueError("execution.vllm.urls names an address twice")
        if self.urls and self.python:
            raise ValueError(
                "execution.vllm.python starts a server, and execution.vllm.urls names servers that "
                "run already: remove one of them"
            )
        return self


class ExecutionConfig(Section):
    """How the work is carried out. These fields change no result, so no stage key holds them."""

    checkpoint_seconds: float = Field(default=30.0, ge=0, le=86_400)
    """Least time between two trainer checkpoints of an update, which a killed one continues from;
    0: after every optimizer step."""
    tool_workers: int = Field(default=32, ge=1, le=4096)
    """Steps of a domain's tools executed side by side, with tools.execution workers."""
    open_attempts: int = Field(default=512, ge=1, le=1_000_000)
    """Attempts under way at once where each advances on its own; bounds memory."""
    retries: int = Field(default=3, ge=0, le=100)
    """How often a stage tries again what it lost to an environment or an engine, with the same
    seeds: attempts once all others are finished, and texts of pi_env."""
    retry_seconds: float = Field(default=1.0, ge=0, le=3600)
    """Pause before the first of these tries; each later one waits twice as long."""
    test_fault: str | None = Field(
        default=None,
        pattern=worded(r"^[a-z_]+:[0-9]{1,5}$", "stage:epoch, as in rollout:2"),
    )
    """For genenv's own tests: `stage:epoch` makes the first attempt at that stage fail. genenv
    refuses it unless GENENV_TEST_FAULTS=1 is set where the run is carried out."""
    vllm: VllmServing = Field(default_factory=lambda: VllmServing())
    """How genenv runs the engine vllm."""
    teacher: EndpointAsking = Field(default_factory=lambda: EndpointAsking())
    """How genenv asks an endpoint that is the teacher."""
    benchmark: EndpointAsking = Field(default_factory=lambda: EndpointAsking())
    """How genenv asks an endpoint that it measures on a benchmark."""
    updates_at_once: Literal[1, 2] = 2
    """1: pi_env's update begins once pi_agent's is finished, so that an epoch needs the memory of
    the larger one and not of both; so does its warm start in bootstrap."""
    keep_checkpoints: int | None = Field(default=None, ge=1, le=100_000)
    """The number of last epochs whose whole weights a run keeps. At the end of an epoch it removes
    older ones, except those of epoch 0, of the best agent and of what goes on. A pinned run keeps
    all, and small adapters (training.lora.rank) stay. None: only `genenv gc` removes any."""
    gradient_checkpointing: Literal["none", "full"] = "none"
    """Whether updates keep only each layer's input for the backward pass and compute the rest of it
    again: about a third more work for much less memory, and the same numbers."""
