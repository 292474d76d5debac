"""The engine `vllm` against a double of its server that fails.

Invariants: answers come in request order, each decided by its own prompt and seed, however requests
are grouped, spread or retried; every sampling parameter is sent; an answer of other weights, of
another prompt, or with wrong counts is refused; no server has more requests than its limit; a lost
server costs no answer while another one works; each wait ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from genenv_core.config.sections.compute import VllmConfig, VllmServing
from genenv_core.engines.sessions import Mailbox, RemoteSession, open_session
from genenv_core.engines.vllm.engine import VllmEngine
from genenv_core.engines.vllm.replica import Replica
from genenv_core.engines.vllm.server import VllmSetup
from genenv_core.engines.vllm.wire import MAX_N, asked
from genenv_core.errors import EngineError
from genenv_core.types import FinishReason, Grammar, SampleRequest, SamplingParams
from tests.unit.engines.vllm.fake_vllm import END, FakeVllm, Faults, Running, serving, tokens
from tests.waiting import BOUND_S, until

NAME = "genenv-0123456789abcdef"
PARAMS = SamplingParams(max_tokens=8, temperature=0.7, top_p=0.9, stop_token_ids=(END,))
QUICK: dict[str, Any] = {"backoff_seconds": 0.01, "stop_seconds": 1.0}


def all_up(engine: VllmEngine) -> None:
    until(lambda: all(replica.up for replica in engine._fleet._upkeep.replicas))


def under_way(server: FakeVllm, count: int) -> None:
    """Wait until a server is at work on `count` completions."""
    until(lambda: server.at_once == count)


@contextmanager
def engine_on(
    *running: Running,
    checkpoint: Path = Path("/nowhere"),
    check: Any = None,
    max_model_len: int | None = None,
    **serving: Any,
) -> Iterator[VllmEngine]:
    setup = VllmSetup(
        NAME,
        VllmConfig(max_model_len=max_model_len),
        VllmServing(urls=tuple(one.url for one in running), **{**QUICK, **serving}),
        Path("/nowhere/log"),
        check=check or (lambda: None),
    )
    engine = VllmEngine(checkpoint, setup)
    try:
        yield engine
    finally:
        engine.close()


def fake(**settings: Any) -> FakeVllm:
    return FakeVllm(**{"model": NAME, **settings})


def requests_of(count: int, samples: int = 1) -> list[SampleRequest]:
    return [
        SampleRequest((10 + index % 30, 5, 6 + index // 30), seed=1000 * index + sample)
        for index in range(count)
        for sample in range(samples)
    ]


def expected(requests: list[SampleRequest], model: str = NAME) -> list[tuple[int, ...]]:
    return [tuple(tokens(model, list(r.prompt_ids), r.seed, PARAMS.max_tokens)) for r in requests]


def ids(engine: VllmEngine, requests: list[SampleRequest]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in engine.sample(requests, PARAMS)]


def test_answers_come_in_order_with_their_logprobs() -> None:
    requests = requests_of(40)
    with serving(fake()) as [one], engine_on(one) as engine:
        answers = engine.sample(requests, PARAMS)
    assert [answer.token_ids for answer in answers] == expected(requests)
    assert len(set(expected(requests))) == 40
    for answer in answers:
        assert answer.logprobs == tuple(-token / 100 for token in answer.token_ids)
        assert answer.finish_reason is FinishReason.STOP and answer.error == ""


def test_everything_that_decides_a_token_is_said() -> None:
    server = fake()
    grammar = Grammar("regex", "a+")
    with serving(server) as [one], engine_on(one) as engine:
        engine.sample([SampleRequest((7, 8), -1, grammar)], PARAMS)
    [body] = server.asked
    assert body == {
        "model": NAME,
        "prompt": [7, 8],
        "max_tokens": 8,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": 2**63 - 1,
        "n": 1,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "ignore_eos": True,
        "stop_token_ids": [END],
        "add_special_tokens": False,
        "skip_special_tokens": False,
        "structured_outputs": {"regex": "a+"},
    }


def test_rising_seeds_of_one_prompt_share_a_request_and_change_nothing() -> None:
    requests = requests_of(5, samples=4)
    server = fake()
    with serving(server) as [one], engine_on(one) as engine:
        assert ids(engine, requests) == expected(requests)
        assert [body["n"] for body in server.asked] == [4] * 5
        assert ids(engine, requests[::-1]) == expected(requests)[::-1]
    apart = [SampleRequest((1,), 0), SampleRequest((1,), 2), SampleRequest((2,), 3)]
    assert [ask.n for ask in asked(apart)] == [1, 1, 1]
    constrained = [SampleRequest((1,), 0), SampleRequest((1,), 1, Grammar("json", "{}"))]
    assert [ask.n for ask in asked(constrained)] == [1, 1]
    many = [SampleRequest((1,), seed) for seed in range(MAX_N + 3)]
    assert [ask.n for ask in asked(many)] == [MAX_N, 3]
    assert [ask.n for ask in asked(many[:10], 4)] == [4, 4, 2]
    # Seeds are taken modulo 2^63, and none of them may pass it within a request.
    assert [(a.seed, a.n) for a in asked([SampleRequest((1,), -1), SampleRequest((1,), 0)])] == [
        (2**63 - 1, 1),
        (0, 1),
    ]


def test_concurrency_is_limited_and_two_servers_share_equally() -> None:
    servers = [fake() for _ in range(2)]
    requests = requests_of(120)
    with serving(*servers) as running, engine_on(*running, concurrency=4) as engine:
        all_up(engine)
        for server in servers:
            server.faults.held = True
        futures = [engine.submit(request, PARAMS) for request in requests]
        for turn in range(1, 16):  # each server answers four, and gets four
            until(lambda turn=turn: [len(server.asked) for server in servers] == [4 * turn] * 2)
            for server in servers:
                answered, server.faults = server.faults, Faults(held=turn < 15)
                answered.held = False
        made = [future.result(BOUND_S).token_ids for future in futures]
        assert made == expected(requests)
        assert [server.most_at_once for server in servers] == [4, 4]
        assert [len(server.asked) for server in servers] == [60, 60]
        for request in requests[:10]:  # one after another, with nothing under way
            assert ids(engine, [request]) == expected([request])
        assert [len(server.asked) for server in servers] == [65, 65]
    grouped = requests_of(10, samples=9)
    with serving(servers[0]) as running, engine_on(*running, concurrency=4) as engine:
        assert ids(engine, grouped) == expected(grouped)
    assert servers[0].most_at_once == 4


def test_a_slow_server_gets_less() -> None:
    slow, quick = fake(), fake()
    requests = requests_of(100)
    with serving(slow, quick) as running, engine_on(*running, concurrency=4) as engine:
        all_up(engine)
        slow.faults.held = True
        futures = [engine.submit(request, PARAMS) for request in requests]
        until(lambda: sum(future.done() for future in futures) == 96)
        slow.faults.held = False
        assert [future.result(BOUND_S).token_ids for future in futures] == expected(requests)
    assert (len(slow.asked), len(quick.asked)) == (4, 96)


def test_each_submitted_request_is_answered_by_itself() -> None:
    held = Faults(held=True)
    server = fake(faults=held)
    with serving(server) as [one], engine_on(one) as engine:
        slow = engine.submit(requests_of(1)[0], PARAMS)
        under_way(server, 1)
        server.faults = Faults()
        quick = engine.submit(requests_of(2)[1], PARAMS)
        assert quick.result(BOUND_S).token_ids == expected(requests_of(2))[1]
        assert not slow.done()
        held.held = False
        assert slow.result(BOUND_S).token_ids == expected(requests_of(1))[0]
        found: list[list[tuple[int, ...]]] = []
        threads = [
            threading.Thread(target=lambda: found.append(ids(engine, requests_of(20))))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
        assert found == [expected(requests_of(20))] * 4
    with pytest.raises(EngineError, match="after close"):
        engine.submit(requests_of(1)[0], PARAMS)
    with pytest.raises(EngineError, match="after close"):
        engine.sample(requests_of(1), PARAMS)


def test_episodes_advance_by_themselves_in_its_session() -> None:
    server = fake(faults=Faults(delay_s=0.01))
    requests = requests_of(300)
    mailbox: Mailbox = SimpleQueue()
    with serving(server) as [one], engine_on(one) as engine:
        session = open_session(engine, PARAMS, mailbox)
        assert isinstance(session, RemoteSession) and not session.computes
        threads = threading.active_count()
        for tag, request in enumerate(requests):
            session.submit(tag, request, 1 if tag == 0 else 8)
        assert threading.active_count() == threads  # none waits for an answer
        done: dict[int, tuple[int, ...]] = {}
        while len(done) < 300:
            mailbox.get(timeout=BOUND_S)()
            done.update({tag: made.token_ids for tag, made in session.advance()})
        assert [done[tag] for tag in range(1, 300)] == expected(requests)[1:]
        assert done[0] == expected(requests)[0][:1]
        server.faults.held = True
        session.submit(0, requests[0], 8)
        under_way(server, 1)
        session.close()
        under_way(server, 0)  # the request was taken back: it is held still
        server.faults = Faults(answers_for="other")
        session = open_session(engine, PARAMS, mailbox)
        session.submit(0, requests[0], 8)
        with pytest.raises(EngineError, match="answers for the model 'other'"):
            while True:
                mailbox.get(timeout=BOUND_S)()
                session.advance()


def test_what_was_taken_back_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where they are sent: a server hears late that a request was taken back."""
    open_now, most, complete = 0, 0, Replica.complete

    async def counted(*arguments: Any) -> Any:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        try:
            return await complete(*arguments)
        finally:
            open_now -= 1

    monkeypatch.setattr(Replica, "complete", counted)
    server = fake(faults=Faults(delay_s=0.005))
    with serving(server) as [one], engine_on(one, concurrency=1) as engine:
        for asked_before in (0, 1, 2, 5):  # so that one is under way, and others are answered
            server.asked.clear()
            futures = [engine.submit(request, PARAMS) for request in requests_of(10)]
            until(lambda asked_before=asked_before: len(server.asked) >= asked_before)
            for future in futures:
                future.cancel()
        assert ids(engine, requests_of(5)) == expected(requests_of(5))
        under_way(server, 0)
    assert (most, open_now) == (1, 0)


FLEETING = [Faults(errors=7), Faults(drops=7), Faults(aborts=7)]


@pytest.mark.parametrize("faults", FLEETING, ids=["503", "dropped", "given up"])
def test_errors_and_lost_connections_are_tried_again(faults: Faults) -> None:
    requests = requests_of(30)
    server = fake(faults=faults)
    with serving(server) as [one], engine_on(one) as engine:
        assert ids(engine, requests) == expected(requests)
    assert len(server.asked) >= 37


def test_a_server_that_never_recovers_ends_the_stage_with_its_last_words() -> None:
    with (
        serving(fake(faults=Faults(errors=10**6))) as [one],
        engine_on(one, retries=2) as engine,
        pytest.raises(EngineError, match=r"no answer after 3 tries: .* answers 503: overloaded"),
    ):
        engine.sample(requests_of(3), PARAMS)


def test_a_request_that_fails_while_others_succeed_is_a_completion_with_a_reason() -> None:
    server = fake(faults=Faults(refuse_above=45))
    bad = [
        SampleRequest((46, 1), 1),
        SampleRequest((), 1),
        SampleRequest((-1,), 1),
        SampleRequest(tuple([3] * 64), 1),
    ]
    good = requests_of(2)
    with serving(server) as [one], engine_on(one) as engine:
        answers = engine.sample([good[0], *bad, good[1]], PARAMS)
        assert [answers[0].token_ids, answers[5].token_ids] == expected(good)
        # The prompt leaves room for one token only.
        [short] = engine.sample([SampleRequest(tuple([3] * 63), 1)], PARAMS)
    assert len(short.token_ids) == 1
    assert all(answer.finish_reason is FinishReason.ERROR for answer in answers[1:5])
    for answer, message in zip(
        answers[1:5], ("400: Token id is out", "is empty", "token id -1", "64 tokens"), strict=True
    ):
        assert message in answer.error


def test_a_server_that_refuses_everything_ends_the_stage() -> None:
    with serving(fake(faults=Faults(refuse_above=0))) as [one], engine_on(one) as engine:
        few = engine.sample(requests_of(9), PARAMS)
        assert {answer.finish_reason for answer in few} == {FinishReason.ERROR}
        message = "each of the first 16 requests failed: .* 400: Token id is out of vocabulary"
        with pytest.raises(EngineError, match=message):
            engine.sample(requests_of(9), PARAMS)
    # One that was answered shows that it is the requests.
    with serving(fake(faults=Faults(refuse_above=45))) as [one], engine_on(one) as engine:
        assert ids(engine, requests_of(1)) == expected(requests_of(1))
        bad = [SampleRequest((46, 1), 2 * seed) for seed in range(20)]
        assert all(answer.error for answer in engine.sample(bad, PARAMS))


def test_sequences_are_as_long_as_configured_whatever_the_server_takes() -> None:
    with serving(fake(max_model_len=64)) as [one]:
        with engine_on(one, max_model_len=12) as engine:
            [short] = engine.sample([SampleRequest(tuple([3] * 11), 1)], PARAMS)
            [none] = engine.sample([SampleRequest(tuple([3] * 12), 1)], PARAMS)
        assert len(short.token_ids) == 1 and "sequences of 12" in none.error
        message = r"takes sequences of 64 tokens, and compute\.vllm\.max_model_len is 65"
        with pytest.raises(EngineError, match=message), engine_on(one, max_model_len=65):
            pass


def test_one_slow_request_times_out_alone() -> None:
    server = fake(faults=Faults(held=True))
    with serving(server) as [one], engine_on(one, request_seconds=0.3, retries=20) as engine:
        late = engine.submit(requests_of(1)[0], PARAMS)
        under_way(server, 1)
        server.faults = Faults()  # the first request is held for ever
        assert ids(engine, requests_of(3)) == expected(requests_of(3))
        # Asked again after its time was up, and answered.
        assert late.result(BOUND_S).token_ids == expected(requests_of(1))[0]


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (Faults(answers_for="other"), f"answers for the model 'other', and '{NAME}' was asked for"),
        (Faults(extra_logprobs=1), "token ids with"),
        (Faults(other_prompt=True), "for a prompt of 2 other token ids"),
        (Faults(no_ids=True), "token_ids: Field required"),
    ],
    ids=["model", "counts", "prompt", "ids"],
)
def test_an_answer_to_another_request_is_refused(faults: Faults, message: str) -> None:
    with (
        serving(fake(faults=faults)) as [one],
        engine_on(one) as engine,
        pytest.raises(EngineError, match=message),
    ):
        engine.sample(requests_of(2), PARAMS)


def test_a_server_of_another_version_or_model_is_refused_at_the_start() -> None:
    with serving(fake(version="0.30.1"), fake(model="other")) as [old, other]:
        message = r"runs vLLM 0\.30\.1, and compute\.vllm\.version says 0\.31\.0"
        with pytest.raises(EngineError, match=message), engine_on(old):
            pass
        message = f"serves other, '{NAME}' was asked for; it has no weight-update endpoint"
        with pytest.raises(EngineError, match=message), engine_on(other):
            pass
    with serving(fake(version="0.31.0+cpu")) as [one], engine_on(one) as engine:
        assert ids(engine, requests_of(1)) == expected(requests_of(1))


def test_a_key_is_sent_and_a_missing_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(fake(key="secret")) as [one]:
        with pytest.raises(EngineError, match="401: set GENENV_VLLM_API_KEY"), engine_on(one):
            pass
        monkeypatch.setenv("GENENV_VLLM_API_KEY", "secret")
        with engine_on(one) as engine:
            assert ids(engine, requests_of(1)) == expected(requests_of(1))


def test_a_lost_server_costs_no_answer_while_another_one_works() -> None:
    servers = [fake() for _ in range(2)]
    requests = requests_of(150)
    with serving(*servers) as running, engine_on(*running, concurrency=8) as engine:
        all_up(engine)
        for server in servers:
            server.faults.held = True
        futures = [engine.submit(request, PARAMS) for request in requests]
        for server in servers:
            under_way(server, 8)
        running[0].stop()
        servers[1].faults.held = False
        assert [future.result(BOUND_S).token_ids for future in futures] == expected(requests)
        assert len(servers[0].asked) == 8
        servers[0].faults.held = False
        running[0].start()  # it comes back under the same address, and works again
        all_up(engine)
        assert ids(engine, requests) == expected(requests)
        assert len(servers[0].asked) > 8


def test_a_hung_server_is_left_out() -> None:
    servers = [fake(), fake()]
    requests = requests_of(40)
    with serving(*servers) as running, engine_on(*running, stall_seconds=0.3) as engine:
        all_up(engine)
        servers[0].faults.held = True  # for ever, and its health is fine all the while
        assert ids(engine, requests) == expected(requests)
        assert 0 < len(servers[0].asked) < len(servers[1].asked)


def test_a_server_that_is_busy_is_not_taken_for_one_that_hangs() -> None:
    server = fake(faults=Faults(held=True, computes=True))
    with serving(server) as [one], engine_on(one, stall_seconds=0.3) as engine:
        futures = [engine.submit(request, PARAMS) for request in requests_of(4)]
        # It is asked for a token, which waits like the others; after that, for another one.
        until(lambda: [body["prompt"] for body in server.asked].count([0]) == 2)
        server.faults.held = False
        made = [future.result(BOUND_S).token_ids for future in futures]
        assert made == expected(requests_of(4))
    assert len([body for body in server.asked if body["prompt"] != [0]]) == 4  # none done again


def test_when_all_servers_are_gone_the_wait_has_an_end() -> None:
    with serving(fake()) as [one], engine_on(one, lost_seconds=0.3) as engine:
        one.stop()
        message = r"none of http://127.0.0.1:\d+ answers for 0.3 s"
        with pytest.raises(EngineError, match=message):
            engine.sample(requests_of(5), PARAMS)
        with pytest.raises(EngineError, match=message):  # and stays so
            engine.sample(requests_of(5), PARAMS)


@pytest.mark.timeout(BOUND_S)
def test_a_stage_has_a_deadline_and_a_cancelled_caller_does_not_wait() -> None:
    server = fake(faults=Faults(held=True))
    with (
        serving(server) as [one],
        engine_on(one, stage_seconds=2) as engine,
        pytest.raises(EngineError, match="2 requests are not answered after 2 s"),
    ):
        engine.sample(requests_of(2), PARAMS)

    class Stop(BaseException):
        pass

    server = fake(faults=Faults(held=True))

    def check() -> None:
        if server.at_once == 2:
            raise Stop

    # Nothing is ever answered: a close that waited would outlast the test.
    with serving(server) as [one], engine_on(one, check=check, stop_seconds=3600) as engine:
        with pytest.raises(Stop):
            engine.sample(requests_of(2), PARAMS)
        under_way(server, 0)  # the requests were taken back


def test_close_lets_what_is_under_way_end() -> None:
    server = fake()
    with serving(server) as [one]:
        server.faults.held = True
        with engine_on(one, stop_seconds=BOUND_S) as engine:
            future = engine.submit(requests_of(1)[0], PARAMS)
            under_way(server, 1)

            def go_on() -> None:
                until(lambda: engine._fleet._closed)
                server.faults.held = False

            release = threading.Thread(target=go_on)
            release.start()
        release.join()
        assert future.result(BOUND_S).token_ids == expected(requests_of(1))[0]
        server.faults.held = True
        with engine_on(one, stop_seconds=0) as engine:
            future = engine.submit(requests_of(1)[0], PARAMS)
            under_way(server, 1)
        with pytest.raises(EngineError, match="closed before"):
            future.result(BOUND_S)


def test_adapters_are_loaded_under_the_checkpoints_name(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "adapter_config.json").write_text(
        f'{{"base_model_name_or_path": "{tmp_path / "base"}", "r": 8}}', encoding="utf-8"
    )
    server = fake(model="base", lora=True)
    with serving(server) as [one], engine_on(one, checkpoint=tmp_path) as engine:
        assert ids(engine, requests_of(3)) == expected(requests_of(3))
        assert server.adapters == [NAME]
        server.adapters.clear()  # somebody started it anew
        assert ids(engine, requests_of(3)) == expected(requests_of(3))
        assert server.adapters == [NAME]
    with serving(fake(model="base")) as [one]:
        message = "has no LoRA endpoint"
        with pytest.raises(EngineError, match=message), engine_on(one, checkpoint=tmp_path):
            pass


def test_weights_are_loaded_and_the_server_has_to_keep_them(tmp_path: Path) -> None:
    server = fake(model="served", dev=True)
    with serving(server) as [one]:
        with engine_on(one, checkpoint=tmp_path) as engine:
            assert server.steps == [
                f"version loading {NAME}",
                "pause",
                "reload_weights",
                "reset_prefix_cache",
                "resume",
                f"version {NAME}",
            ]
            assert ids(engine, requests_of(3)) == expected(requests_of(3), str(tmp_path))
            server.weights, server.weight_version = "first", "default"  # it was started anew
            assert ids(engine, requests_of(3)) == expected(requests_of(3), str(tmp_path))
            assert server.steps.count("reload_weights") == 2
            # Another client changes the weights: no answer is taken from then on.
            server.weight_version = "genenv-other"
            message = f"answers for the model 'genenv-other', and '{NAME}' was asked for"
            with pytest.raises(EngineError, match=message):
                engine.sample(requests_of(3), PARAMS)
        steps = len(server.steps)
        server.weight_version = NAME
        with engine_on(one, checkpoint=tmp_path) as engine:  # there already: nothing to load
            assert len(server.steps) == steps
        server.weight_version = "default"
        with (
            pytest.raises(EngineError, match="collective_rpc answers 500: no weights at"),
            engine_on(one, checkpoint=tmp_path / "away"),
        ):
            pass
        assert server.steps[-1] == "resume"
        assert server.weight_version != NAME
