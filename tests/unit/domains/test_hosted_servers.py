"""Servers of environments that ask for a key, whichever of the three protocols they speak.

Invariants: the key is read where its variable is, when the server is asked, and goes to the
configured address alone, over HTTP and WebSocket; an address holds no key; what refuses the key is
said with the server, the variable and what to do, is no reward and is not waited for; a busy server
is asked again when it says; no key of a stage depends on where the key is; nothing that is written
or said holds it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.domains.kit.served import client
from genenv_core.domains.nemo_gym import nemo_gym
from genenv_core.domains.openenv import openenv
from genenv_core.domains.ors import ors
from genenv_core.domains.registry import get_domain
from genenv_core.domains.steps import stepped
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError
from genenv_core.types import Cause, TaskDraft
from tasks.stage.key import config_fields
from tests.mutations import mutation
from tests.pipeline.builders import run, tiny
from tests.pipeline.commands import said
from tests.pipeline.conftest import api
from tests.unit.domains.nemo_gym import double as gym_double
from tests.unit.domains.openenv import double as openenv_double
from tests.unit.domains.ors import double as ors_double

__all__ = ["api"]

KEY = "sk-hosted-4711-not-for-logs"
VARIABLE = "MY_ENVIRONMENTS_KEY"
KEYS = "genenv_core/domains/kit/served/keys.py"
CLIENT = "genenv_core/domains/kit/served/client.py"
OPTIONS_FILE = "genenv_core/domains/kit/served/options.py"
NUMBER = {"type": "integer", "minimum": 1, "maximum": 9}


@dataclass
class Hosted:
    """A double that asks for the key, and what is needed to play it."""

    name: str
    make: Callable[[dict[str, Any]], Any]
    server: Any
    options: dict[str, Any]
    program: str
    wrong: str
    right: str
    steps: str
    """The path that a step asks."""

    def domain(self, **more: Any) -> Any:
        return self.make({**self.options, "wait_s": 5, "key_env": VARIABLE, **more})

    def draft(self, domain: Any) -> TaskDraft:
        (draft,) = domain.parse(self.program)
        assert isinstance(draft, TaskDraft), draft
        return draft


def _hosted(name: str, folder: Path, stack: ExitStack) -> Hosted:
    index = '{"index":1,"split":"train"}'
    if name == "openenv":
        server: Any = stack.enter_context(openenv_double.serving())
        own: dict[str, Any] = {"reset": {"properties": {"first": NUMBER, "second": NUMBER}}}
        made = Hosted(name, openenv, server, own, '{"first": 2, "second": 5}', "8", "7", "/ws")
    elif name == "ors":
        server = stack.enter_context(ors_double.serving())
        says = [written({"name": "say", "arguments": {"sum": one}}) for one in ("8", "3")]
        wrong, right = says
        made = Hosted(name, ors, server, {}, index, wrong, right, "/sums/call")
    else:
        server = stack.enter_context(gym_double.serving())
        own = {"split_field": "split", "rows": gym_double.written_rows(folder)}
        hint = written({"name": "hint", "arguments": {}})
        made = Hosted(name, nemo_gym, server, own, index, hint, "3", "/verify")
    made.options |= {"url": server.url, "answer": "right", "explain": False}
    return made


@pytest.fixture(params=["openenv", "ors", "nemo_gym"])
def hosted(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hosted]:
    monkeypatch.setenv(VARIABLE, KEY)
    with ExitStack() as stack:
        made = _hosted(request.param, tmp_path, stack)
        made.server.asks = ("Authorization", f"Bearer {KEY}")
        yield made


@mutation(
    "a WebSocket is opened without the key", CLIENT,
    "max_msg_size=largest, headers=keyed", "max_msg_size=largest",
)  # fmt: skip
@mutation(
    "a key in another header is a bearer's", KEYS,
    'f"Bearer {key}" if self.header == AUTHORIZATION else key', 'f"Bearer {key}"',
)  # fmt: skip
@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
def test_the_key_goes_with_every_request(hosted: Hosted, header: str) -> None:
    value = f"Bearer {KEY}" if header == "Authorization" else KEY
    hosted.server.asks = (header, value)
    domain = hosted.domain(key_header=header)
    episode = domain.episode(hosted.draft(domain), 0)
    assert not episode.step(hosted.wrong).done
    assert episode.step(hosted.right).done
    heard = hosted.server.heard
    assert hosted.steps in {path for path, _ in heard}
    assert all(headers.get(header) == value and KEY not in path for path, headers in heard)


@mutation(
    "a refused key is a lost server", CLIENT,
    "if reply.status in KEPT_OUT and not may_refuse:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_said_before_anything(hosted: Hosted, status: int) -> None:
    hosted.server.refuses = status
    hosted.server.asks = ("Authorization", "Bearer another one")
    with pytest.raises(ConfigError) as refused:
        hosted.domain(wait_s=3)
    text = str(refused.value)
    assert f"answers {status}: it refuses the key in {VARIABLE}" in text
    assert hosted.server.url in text and "set that variable to a key" in text
    assert len(hosted.server.heard) == 1
    assert KEY not in "".join(traceback.format_exception(refused.value)) + repr(refused.value)

    with pytest.raises(ConfigError, match=r"refuses a request without a key: .*options\.key_env"):
        hosted.make(hosted.options)


@mutation(
    "attempts wait for a server that refuses the key",
    "genenv_core/domains/kit/served/sessions.py",
    "            except AccessRefused:\n                raise\n", "",
)  # fmt: skip
@mutation(
    "a new session is asked for again with a refused key", CLIENT,
    "            except AccessRefused:\n                raise\n", "",
)  # fmt: skip
@mutation(
    "a WebSocket refused for its key is a lost server", CLIENT,
    "if found[0] in KEPT_OUT:", "if False:",
)  # fmt: skip
def test_a_key_that_no_longer_holds_is_the_environments_failure(hosted: Hosted) -> None:
    domain = hosted.domain(wait_s=3)
    draft = hosted.draft(domain)
    episode = domain.episode(draft, 0)
    assert not episode.step(hosted.wrong).done
    hosted.server.asks = ("Authorization", "Bearer another one")
    if hosted.name == "openenv":  # its connection lasts, so it has to be lost
        hosted.server.stop()
        hosted.server.start()
    before = len(hosted.server.heard)
    failed = stepped(episode.step, hosted.right)
    assert failed.failed and failed.cause is Cause.ENVIRONMENT and not failed.done
    text = failed.messages[0]["content"]
    assert f"it refuses the key in {VARIABLE}" in text and KEY not in text
    asked = [path for path, _ in hosted.server.heard[before:]]
    assert asked.count(hosted.steps) == 1


@mutation(
    "a WebSocket closed for its key is a lost server", "genenv_core/domains/openenv/client.py",
    "if not self._heard and self._socket.close_code in KEPT_OUT_CODES:", "if False:",
)  # fmt: skip
def test_a_socket_that_is_closed_for_its_key_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    with openenv_double.serving(closes_with=1008) as server:
        domain = openenv({"url": server.url, "key_env": VARIABLE, "wait_s": 3})
        with pytest.raises(Exception, match=f"with code 1008: it refuses the key in {VARIABLE}"):
            domain.parse('{"seed":3}')


@mutation(
    "a key follows a redirect", CLIENT, "if key is not None and 300 <=", "if False and 300 <="
)
def test_the_key_goes_to_no_other_address(hosted: Hosted) -> None:
    with openenv_double.serving() as other:
        first = {"openenv": "/metadata", "ors": "/list_environments", "nemo_gym": "/openapi.json"}
        later = {"openenv": "/ws", "ors": "/create_session", "nemo_gym": "/seed_session"}
        domain = hosted.domain()
        hosted.server.elsewhere[later[hosted.name]] = f"{other.url}/x?key=1"
        with pytest.raises(Exception, match=r"redirects to http://127\.0\.0\.1, and the key in"):
            domain.parse(hosted.program)
        hosted.server.elsewhere[first[hosted.name]] = f"{other.url}/x"
        with pytest.raises(ConfigError, match="goes to the configured address alone: give the se"):
            hosted.domain()
        assert other.heard == []


@mutation(
    "a busy server is not asked again", CLIENT,
    "if status != BUSY or not after_s:", "if True:",
)  # fmt: skip
@mutation(
    "a wait that is too long is waited", CLIENT, "if time.monotonic() + after_s > end:", "if False:"
)
def test_a_busy_server_is_asked_again_when_it_says(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = hosted.domain(repeatable=False)
    draft = hosted.draft(domain)
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(client.asyncio, "sleep", pause)
    hosted.server.busy[hosted.steps] = ["2", "3"]
    episode = domain.episode(draft, 0)
    if hosted.name == "openenv":  # its connection lasts, so it has to be lost
        hosted.server.stop()
        hosted.server.start()
    assert not episode.step(hosted.wrong).done and episode.step(hosted.right).done
    assert [one for one in paused if one in (2, 3)] == [2, 3]

    hosted.server.busy["/metadata"] = hosted.server.busy["/list_environments"] = ["60"]
    hosted.server.busy["/openapi.json"] = ["60"]
    with pytest.raises(ConfigError, match=r"asked again in 60 s: wait so long, or raise .*wait_s"):
        hosted.domain()


@mutation("an address may hold a key", KEYS, "if re.fullmatch(ADDRESS, url):", "if True:")
@mutation(
    "the server's variable may hold a key", OPTIONS_FILE,
    'check_address(found, "domain.options.url" if self.url else self.url_variable)', "pass",
)  # fmt: skip
@pytest.mark.parametrize(
    "url", [f"https://me:{KEY}@host", f"https://host/x?token={KEY}", f"https://host/#{KEY}"]
)
def test_an_address_holds_no_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for make, more in ((openenv, {}), (ors, {}), (nemo_gym, {"rows": "rows.jsonl"})):
        with pytest.raises(ConfigError, match=r"domain\.options\.key_env names") as refused:
            make({"url": url, "wait_s": 0, **more})
        assert KEY not in "".join(traceback.format_exception(refused.value))
    monkeypatch.setenv("GENENV_OPENENV_URL", url)
    with pytest.raises(ConfigError, match="GENENV_OPENENV_URL: give an address such as") as refused:
        openenv({"wait_s": 0})
    assert KEY not in str(refused.value)


@mutation(
    "a key goes over plain HTTP", KEYS,
    'parts.scheme == "https" or _is_here(parts.hostname or "")', "True",
)  # fmt: skip
@mutation(
    "a value in the place of a name is repeated", OPTIONS_FILE, "checked_variable(name)", "name"
)
@mutation("a key may be an option", OPTIONS_FILE, '(name == "key" or names_secret(name))', "False")
def test_a_key_is_named_and_goes_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    for wrong, words in (
        ({"key_env": KEY}, "key_env is the name of an environment variable"),
        ({"api_key": KEY}, r"domain\.options\.api_key looks like a secret"),
        ({"key": KEY}, r"domain\.options\.key looks like a secret"),
        ({"url": "http://10.1.2.3:8000", "key_env": VARIABLE}, "would be sent unencrypted"),
        ({"url": "http://env.example.com", "key_env": VARIABLE}, "would be sent unencrypted"),
        ({"key_header": "X-API-Key"}, "key_header does nothing without key_env"),
        ({"key_over_http": True}, "key_over_http does nothing without key_env"),
        ({"url": None, "serve": "a:b", "key_env": VARIABLE}, "key_env is for a server at a url"),
    ):
        with pytest.raises(ConfigError, match=words) as refused:
            openenv({"url": "https://host", **wrong})
        assert KEY not in "".join(traceback.format_exception(refused.value))


@mutation("a key never goes to a service in a cluster", KEYS, "if self.over_http:", "if False:")
@mutation(
    "a key goes unencrypted without a word", KEYS, "return _warn(url, self.variable)", "return"
)
@mutation("each question warns of an unencrypted key", KEYS, "@cache\ndef _warn", "def _warn")
def test_a_key_goes_unencrypted_where_an_option_says_so(
    hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    # An address of this machine that is no loopback address, as a service in a cluster has none.
    url = hosted.server.url.replace("127.0.0.1", "0.0.0.0")
    with pytest.raises(ConfigError, match=r"unencrypted: .*key_over_http: true permits"):
        hosted.domain(url=url)
    assert hosted.server.heard == []
    for _ in range(2):
        domain = hosted.domain(url=url, key_over_http=True)
        assert domain.episode(hosted.draft(domain), 0).step(hosted.right)
    heard = [headers.get("Authorization") for _, headers in hosted.server.heard]
    assert set(heard) == {f"Bearer {KEY}"}
    (warned,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert f"the key in {VARIABLE} goes unencrypted to {url}" in warned
    assert KEY not in caplog.text


@mutation(
    "a missing variable is an empty key", KEYS, "        if not key:\n", "        if False:\n"
)
@mutation("any text is a key", KEYS, "if not _KEY.fullmatch(key):", "if False:")
def test_a_variable_without_a_key_is_said(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigError, match=f"the variable {VARIABLE}, which is not set here: set"):
        hosted.domain()
    for wrong in ("short", "with a space", "with\na line"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(ConfigError, match="which holds no key") as refused:
            hosted.domain()
        assert wrong not in str(refused.value)
    assert hosted.server.heard == []


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_missing_variable_is_found_before_anything_is_made(
    hosted: Hosted, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    root = tmp_path / "root"
    options = json.dumps({**hosted.options, "key_env": VARIABLE})
    settings = [f"domain.name={hosted.name}", f"domain.options={options}"]
    words = [word for one in settings for word in ("--set", one)]
    done = said(command, "tiny", "--root", str(root), *words, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{VARIABLE}, which is not set here" in done.stderr + done.stdout
    assert not root.exists() and hosted.server.heard == []


@mutation(
    "the name of a variable is in keys", "genenv_core/domains/registry.py",
    "if field not in REFERENCES", "if True",
)  # fmt: skip
@mutation("a version depends on the variable", OPTIONS_FILE, "*unused, *REFERENCES}", "*unused}")
def test_no_key_depends_on_where_the_key_is(
    hosted: Hosted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANOTHER_NAME", KEY)
    found: list[Any] = []
    for name in (VARIABLE, "ANOTHER_NAME"):
        options = {**hosted.options, "key_env": name, "key_over_http": name != VARIABLE}
        parts = {
            "parts": [{"name": hosted.name, "as": "one", "options": options}, {"name": "desk"}]
        }
        for domain, given in ((hosted.name, options), ("several", parts)):
            settings = (f"domain.name={domain}", f"domain.options={json.dumps(given)}")
            config = tiny(tmp_path, *settings, run_id="r")
            version = get_domain(domain, given).version
            found.append((config_fields(config, ["domain"]), version))
    assert found[:2] == found[2:] and VARIABLE not in str(found)
    mine = tiny(
        tmp_path, "domain.name=my.py:Mine", 'domain.options={"key_header": "a"}', run_id="r"
    )
    assert "key_header" in str(config_fields(mine, ["domain"]))


@mutation(
    "a key that a server repeats is kept", KEYS,
    "return text.replace(key, HIDDEN) if key else text", "return text",
)  # fmt: skip
def test_a_key_that_a_server_repeats_is_hidden(hosted: Hosted) -> None:
    domain = hosted.domain()
    episode = domain.episode(hosted.draft(domain), 0)
    words = {"openenv": '"try again"', "ors": '"try again"', "nemo_gym": '"hint"'}
    word = words[hosted.name]
    hosted.server.spoil = lambda _, text: text.replace(word, f'{word[:-1]}, {KEY}"')
    heard = episode.step(hosted.wrong).messages[-1]["content"]
    assert f"{word[1:-1]}, ***" in heard


@pytest.mark.slow
def test_nothing_that_a_run_writes_or_says_holds_the_key(
    api: None,
    hosted: Hosted,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    # A server that repeats the key to whoever asks, the agent not excepted.
    repeated = {'"wrong"': f'"wrong, {KEY}"', '"hint"': f'"hint, {KEY}"'}

    def repeat(asked: Any, text: str) -> str:
        del asked
        for word, more in repeated.items():
            text = text.replace(word, more)
        return text

    if hosted.name == "ors":
        del repeated['"hint"']  # a tool's name
    hosted.server.spoil = repeat
    root = tmp_path / "root"
    options = {**hosted.options, "wait_s": 5, "key_env": VARIABLE}
    settings = (
        *(f"domain.name={hosted.name}", f"domain.options={json.dumps(options)}", "seed=3"),
        *("data.base_tasks=20", "data.validation_tasks=3", "data.test_tasks=5"),
        *("bootstrap.agent_steps=120", "bootstrap.env_steps=80"),
    )
    run(tiny(root, *settings, epochs=1, run_id="keyed"))
    out, err = capfd.readouterr()
    assert KEY not in out + err + caplog.text
    files = [path for path in root.rglob("*") if path.is_file()]
    tables = [path for path in files if path.suffix == ".parquet"]
    assert len(tables) > 10 and all(KEY.encode() not in path.read_bytes() for path in files)
    texts = [str(pl.read_parquet(path).to_dicts()) for path in tables]
    assert not any(KEY in text for text in texts)
    if hosted.name != "nemo_gym":
        assert any(", ***" in text for text in texts)
    assert any(VARIABLE.encode() in path.read_bytes() for path in files)
