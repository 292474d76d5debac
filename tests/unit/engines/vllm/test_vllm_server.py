"""The life of a vLLM server that the engine starts, with a double in vLLM's place.

Invariants: its whole process group is gone after `close`, after a failed start, and after genenv
itself was killed; a server that is killed or hangs is started anew, and its requests are repeated
with the same result; a start has a limit, and its error shows the end of the log; the server gets
none of our paths and secrets, and sends no telemetry.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from genenv_core.config.sections.compute import VllmConfig, VllmServing
from genenv_core.engines.vllm.engine import VllmEngine
from genenv_core.engines.vllm.server import VllmSetup, interpreter, server_command
from genenv_core.errors import ConfigError, EngineError, ModelError
from tests.unit.engines.vllm.fake_vllm import write_interpreter
from tests.unit.engines.vllm.test_vllm_client import NAME, PARAMS, expected, ids, requests_of
from tests.waiting import BOUND_S, until

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[4]


@contextmanager
def own(folder: Path, *, before: str = "", **serving: Any) -> Iterator[VllmEngine]:
    """Run an engine with a server of its own."""
    settings = {"backoff_seconds": 0.01, "stop_seconds": 2.0, "start_seconds": 120.0, **serving}
    python = str(write_interpreter(folder, before=before))
    setup = VllmSetup(
        NAME, VllmConfig(), VllmServing(python=python, **settings), folder / "vllm.log"
    )
    engine = VllmEngine(folder, setup)
    try:
        yield engine
    finally:
        engine.close()


def pids(folder: Path) -> list[int]:
    """Return the process ids of the server's last start, from its log."""
    lines = (folder / "vllm.log").read_text("utf-8").splitlines()
    starts = [line for line in lines if line.startswith("pids ")]
    return [int(pid) for pid in starts[-1].split()[1:]]


def gone(*processes: int) -> bool:
    """Return whether all processes have ended; zombies count as ended."""
    return not any(map(_lives, processes))


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_starts_answers_and_leaves_no_process(tmp_path: Path) -> None:
    requests = requests_of(20, samples=2)
    with own(tmp_path) as engine:
        assert ids(engine, requests) == expected(requests)
        server, child = pids(tmp_path)
        guard = engine.server_pid
        assert guard is not None and _lives(server) and _lives(child)
        assert os.getpgid(child) == guard != os.getpgid(0)
    assert gone(guard, server, child)
    assert engine.server_pid is None
    engine.close()  # a second time does nothing


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_a_lost_server_is_started_anew_and_its_work_done_again(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = tmp_path / "released"
    monkeypatch.setenv("VLLM_FAKE_FIRST", "8")
    monkeypatch.setenv("VLLM_FAKE_RELEASED", str(released))
    requests = requests_of(60)
    with own(tmp_path, concurrency=4, stall_seconds=0.5, restarts=20) as engine:
        server, child = pids(tmp_path)
        futures = [engine.submit(request, PARAMS) for request in requests]
        until(lambda: sum(future.done() for future in futures) == 8)
        os.kill(server, number)
        released.touch()
        made = [future.result(BOUND_S).token_ids for future in futures]
        assert made == expected(requests)
        assert pids(tmp_path) != [server, child]
        assert gone(server, child)  # a hung one was killed, with its child
        assert _lives(pids(tmp_path)[0])
    assert gone(*pids(tmp_path))


def test_a_server_that_fails_again_and_again_ends_the_stage(tmp_path: Path) -> None:
    with own(tmp_path, restarts=1) as engine:
        for _ in range(2):
            assert ids(engine, requests_of(2)) == expected(requests_of(2))
            os.kill(pids(tmp_path)[0], signal.SIGKILL)
        message = r"failed 2 times \(execution.vllm.restarts 1\): .*its log ends: .*pids"
        with pytest.raises(EngineError, match=message):
            engine.sample(requests_of(2), PARAMS)


def test_a_server_that_dies_of_every_request_is_not_started_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_FAKE_DIES", "1")
    with own(tmp_path, restarts=50) as engine:
        message = "failed 2 times, twice without an answer"
        with pytest.raises(EngineError, match=message):
            engine.sample(requests_of(2), PARAMS)


def test_a_start_that_fails_shows_the_end_of_the_log(tmp_path: Path) -> None:
    broken = "echo one; echo 'ValueError: no such flag' >&2; echo later; exit 3"
    with pytest.raises(EngineError) as error, own(tmp_path, before=broken):
        pass
    text = str(error.value)
    assert "the server ended after" in text and "one | ValueError: no such flag | later" in text
    assert "ended with status 3" in text and str(tmp_path / "vllm.log") in text


def test_the_cause_is_named_when_other_processes_end_because_of_it(tmp_path: Path) -> None:
    log = """(APIServer pid=1) WARNING 11-21 23:29:42 [system.py:249] errors like `OSError: many`
(Worker pid=3) ERROR 11-21 23:32:42 [multiproc_executor.py:1058] Traceback (most recent call last):
(Worker pid=3) ERROR 11-21 23:32:42 [multiproc_executor.py:1058] RuntimeError: Unsupported head_dim
(EngineCore pid=2) ERROR 11-21 23:32:42 [core.py:1435]     raise RuntimeError(
(EngineCore pid=2) ERROR 11-21 23:32:42 [core.py:1435] RuntimeError: Worker failed
(APIServer pid=1) ERROR 11-21 23:32:42 [async_llm.py:871] v.EngineDeadError: see above
one
two
three
four
five
UserWarning: resource_tracker: leaked
"""
    (tmp_path / "printed").write_text(log, encoding="utf-8")
    with (
        pytest.raises(EngineError) as error,
        own(tmp_path, before=f"cat {tmp_path}/printed; exit 1"),
    ):
        pass
    message = (
        "its log ends: RuntimeError: Unsupported head_dim | v.EngineDeadError: see above | "
        "one | two | three | four | five | genenv: the server ended with status 1"
    )
    assert message in str(error.value)


@pytest.mark.timeout(BOUND_S)
def test_a_start_has_a_limit(tmp_path: Path) -> None:
    slow = 'echo "pids $$"; sleep 3600'
    with (
        pytest.raises(EngineError, match=r"does not answer after .*start_seconds 2\)"),
        own(tmp_path, before=slow, start_seconds=2),
    ):
        pass
    assert gone(*pids(tmp_path))


def test_a_start_whose_first_token_never_comes_has_the_same_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_FAKE_HOLDS", "1")
    with (
        pytest.raises(EngineError, match=r"does not answer after .*start_seconds 15\)"),
        own(tmp_path, start_seconds=15),
    ):
        pass


def test_a_port_that_another_program_has_taken_is_left_to_it(tmp_path: Path) -> None:
    once = (
        f"test -e {tmp_path}/taken || {{ touch {tmp_path}/taken; "
        "echo 'OSError: [Errno 98] Address already in use'; exit 1; }"
    )
    with own(tmp_path, before=once, restarts=0) as engine:
        assert ids(engine, requests_of(2)) == expected(requests_of(2))
    always = "echo 'OSError: [Errno 98] Address already in use'; exit 1"
    message = "the server ended after .*Address already in use"
    with pytest.raises(EngineError, match=message), own(tmp_path, before=always):
        pass


@pytest.mark.timeout(BOUND_S)
def test_a_start_can_be_cancelled(tmp_path: Path) -> None:
    python = str(write_interpreter(tmp_path, before='echo "pids $$"; sleep 3600'))

    def check() -> None:
        if (tmp_path / "vllm.log").read_bytes():
            raise KeyboardInterrupt

    setup = VllmSetup(
        NAME, VllmConfig(), VllmServing(python=python), tmp_path / "vllm.log", check=check
    )
    with pytest.raises(KeyboardInterrupt):
        VllmEngine(tmp_path, setup)
    assert gone(*pids(tmp_path))


def test_a_server_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.unit.engines.vllm.test_vllm_server import own\n"
        f"with own(Path({str(tmp_path)!r})):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(3600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, cwd=REPOSITORY
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    server, child = pids(tmp_path)
    assert _lives(server) and _lives(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: gone(server, child))


def test_a_server_does_not_outlive_a_killed_guard(tmp_path: Path) -> None:
    with own(tmp_path) as engine:
        [server, child], guard = pids(tmp_path), engine.server_pid
        assert guard is not None
        os.kill(guard, signal.SIGKILL)
        until(lambda: gone(server))  # the kernel saw to it
        assert ids(engine, requests_of(3)) == expected(requests_of(3))  # a new one has come
        assert gone(child)


def test_the_servers_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("GENENV_VLLM_API_KEY", "of another server")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    with own(tmp_path, before=f"env > {tmp_path}/env"):
        environment = dict(
            line.partition("=")[::2]
            for line in (tmp_path / "env").read_text("utf-8").splitlines()
            if "=" in line
        )
    assert {"PYTHONPATH", "GENENV_VLLM_API_KEY"} & set(environment) == set()
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert len(environment["VLLM_API_KEY"]) > 20
    for name in ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "HF_HUB_OFFLINE"):
        assert environment[name] == "1"


def test_the_server_gets_its_arguments(tmp_path: Path) -> None:
    config = VllmConfig(
        dtype="float32", max_model_len=512, tensor_parallel=2, arguments=("--enforce-eager",)
    )
    how = server_command(
        tmp_path, NAME, config, python="py", logprobs_mode="raw_logprobs", log=tmp_path / "log"
    )
    assert how.model == str(tmp_path)
    assert set(how.arguments) == {
        f"--served-model-name={NAME}",
        "--dtype=float32",
        "--tensor-parallel-size=2",
        "--logprobs-mode=raw_logprobs",
        "--generation-config=vllm",
        "--disable-uvicorn-access-log",
        "--max-model-len=512",
        "--enforce-eager",
    }


def test_adapters_are_started_on_their_base(tmp_path: Path) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    adapter.mkdir()
    path = adapter / "adapter_config.json"

    def command() -> Any:
        return server_command(
            adapter, NAME, VllmConfig(), python="py", logprobs_mode="x", log=tmp_path / "log"
        )

    path.write_text(json.dumps({"base_model_name_or_path": str(base), "r": 12}), encoding="utf-8")
    how = command()
    assert how.model == str(base)
    assert {
        "--enable-lora",
        "--max-lora-rank=16",
        f"--lora-modules={NAME}={adapter}",
        f"--served-model-name={NAME}-base",
    } <= set(how.arguments)
    path.write_text(json.dumps({"base_model_name_or_path": "org/model", "r": 8}), encoding="utf-8")
    with pytest.raises(ModelError, match="'org/model', which is no folder"):
        command()
    path.write_text(json.dumps({"base_model_name_or_path": str(base), "r": 999}), encoding="utf-8")
    with pytest.raises(ModelError, match="no adapter of rank 999"):
        command()
    path.write_text("[", encoding="utf-8")
    with pytest.raises(ModelError, match="is no JSON: "):
        command()
    # Ours have the base beside the adapter: what is served as the base must not hold the adapter.
    path.write_text(json.dumps({"base_model_name_or_path": None, "r": 8}), encoding="utf-8")
    for name in ("config.json", "model.safetensors", "adapter_model.safetensors"):
        (adapter / name).write_bytes(name.encode())
    for _ in range(2):  # a second start finds the links there
        folder = Path(command().model)
        assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]
        assert (folder / "model.safetensors").read_bytes() == b"model.safetensors"


def test_the_interpreter_is_given_named_or_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENENV_VLLM_PYTHON", raising=False)
    with pytest.raises(ConfigError, match="GENENV_VLLM_PYTHON"):
        interpreter(None)
    monkeypatch.setenv("GENENV_VLLM_PYTHON", sys.executable)
    assert interpreter(None) == sys.executable
    for wrong in ("/nowhere/py", str(Path(sys.executable).parent)):
        with pytest.raises(ConfigError, match=rf"execution.vllm.python '{wrong}' is no program"):
            interpreter(wrong)
