"""What sampling and scoring leave behind in the process of a run.

Invariants: a closed engine and an ended scoring hold no model, also after a session and after an
error, and nothing has to be collected for that; the process does not grow with the number of
threads that held a model.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genenv_core.engines.transformers import engine as engines
from genenv_core.engines.transformers import scoring as scorings
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.kl import sequence_kl
from genenv_core.engines.transformers.scoring import ScoringArithmetic
from genenv_core.errors import EngineError
from genenv_core.types import SampleRequest, SamplingParams
from tests.mutations import mutation
from tests.unit.training.builders_training import MODEL_BYTES, weighty_checkpoint

ENGINE = "genenv_core/engines/transformers/engine.py"
SCORING = "genenv_core/engines/transformers/scoring.py"
THREADS = 4
"""Alive at once, as those of a pool are: glibc gives each a region of its own."""

PARAMS = SamplingParams(max_tokens=4)
REQUESTS = [SampleRequest(tuple(2 + (row + at) % 20 for at in range(60)), row) for row in range(64)]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weighty_checkpoint(tmp_path_factory.mktemp("left") / "policy")


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Generator[list[weakref.ref[Any]]]:
    """Return a list that fills with the models that are loaded, while nothing is collected."""
    found: list[weakref.ref[Any]] = []

    def noted(load: Callable[..., Any]) -> Callable[..., Any]:
        def loaded(*given: Any, **named: Any) -> Any:
            model = load(*given, **named)
            found.append(weakref.ref(model))
            return model

        return loaded

    for module in (engines, scorings):
        monkeypatch.setattr(module, "load_model", noted(module.load_model))
    gc.disable()
    yield found
    gc.enable()


def sampled(checkpoint: Path) -> None:
    engine = TransformersEngine.load(checkpoint, threads=1)
    engine.sample(REQUESTS, PARAMS)
    engine.close()


@mutation("a closed engine keeps its model", ENGINE,
          "        self._model = None\n        give_back()", "        give_back()")  # fmt: skip
def test_a_closed_engine_holds_no_model(policy: Path, models: list[weakref.ref[Any]]) -> None:
    sampled(policy)
    engine = TransformersEngine.load(policy, threads=1)
    session = engine.open_session(PARAMS)
    session.submit(0, REQUESTS[0], PARAMS.max_tokens)
    session.advance()
    session.close()
    del session
    with pytest.raises(EngineError, match="vocabulary") as kept:
        engine.sample(REQUESTS[:1], replace(PARAMS, stop_token_ids=(10**6,)))
    engine.close()
    assert [one() for one in models] == [None, None], kept


@mutation("memory of scoring stays", SCORING, "        give_back()\n", "")
def test_scoring_holds_no_model_and_gives_memory_back(
    policy: Path, models: list[weakref.ref[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    monkeypatch.setattr(
        scorings, "give_back", lambda: held.append(sum(one() is not None for one in models))
    )
    rows = [(one.prompt_ids, one.prompt_ids[:8]) for one in REQUESTS[:8]]
    sequence_kl(policy, policy, rows, arithmetic=ScoringArithmetic(1))
    assert held[-1:] == [0] and len(models) == 2


@mutation("memory of a closed engine stays", ENGINE, "        give_back()\n", "")
def test_a_closed_engine_gives_memory_back(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[bool] = []
    monkeypatch.setattr(engines, "give_back", lambda: given_back.append(True))
    engine = TransformersEngine.load(policy, threads=1)
    assert not given_back
    engine.close()
    assert given_back == [True]


GROWTH = f"""
import sys, threading
from pathlib import Path
import psutil
from tests.unit.engines.test_engine_leftovers import sampled

resident, over = [], threading.Event()

def stay():
    try:
        sampled(Path(sys.argv[1]))
        resident.append(psutil.Process().memory_info().rss)
    finally:
        done.set()
    over.wait()

threads = []
for _ in range({THREADS}):
    done = threading.Event()
    threads.append(threading.Thread(target=stay))
    threads[-1].start()
    done.wait()
over.set()
for thread in threads:
    thread.join()
assert len(resident) == {THREADS}
print(resident[-1] - resident[0])
"""


@pytest.mark.slow
def test_a_process_does_not_grow_with_the_threads_that_held_a_model(policy: Path) -> None:
    # In a process of its own: what other tests have left would be counted here.
    command = [sys.executable, "-c", GROWTH, str(policy)]
    played = subprocess.run(command, capture_output=True, text=True, check=True)
    # What one thread leaves behind is 65 MB where it is not given back.
    assert int(played.stdout) < 4 * MODEL_BYTES
