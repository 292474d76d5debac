"""A run with an MLflow server that is away, with a stand-in for the server's client.

Invariants: epochs are logged in order, each once, and noted; the next epoch that reaches a server
logs the epochs that it missed; people hear once that a server is away and once that it is back, and
in the end where the run is logged and what brings there what it lacks; an error of a server is a
warning, and so is one of a database; passwords are refused in the configuration and never
shown; uploads without a server are refused; runs of two roots are two MLflow runs, and a copy
continues that of the run.
"""

from __future__ import annotations

import http.server
import json
import logging
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.store.db.utils import _get_managed_session_maker
from mlflow.utils.search_utils import SearchModelVersionUtils
from mlflow.utils.validation import (
    _validate_experiment_name,
    _validate_model_name,
    _validate_param,
)
from sqlalchemy import create_engine
from sqlalchemy import text as sql_text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import sessionmaker
from typer.testing import CliRunner

from flows.cli.app import app as cli
from flows.cli.runs.live import RunView
from flows.shown.prefect_artifacts import summary
from genenv_core.config.load import dump, resolve
from genenv_core.config.stages import LAST
from genenv_core.errors import ConfigError
from genenv_core.machine.shortage import DISK
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.manifest import ArtifactRef
from genenv_core.storage.records.runs import TRACKED, RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.copying import copy_run
from tasks.tracking import client as mlflow_client
from tasks.tracking import track as tracking
from tasks.tracking.names import model_name, parameter_names
from tests.mutations import mutation


class Stage:
    """A run with published epochs, and a record of the epochs sent to MLflow."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
        self.config = resolve(
            "tiny",
            overrides=[f"tracking.uri={uri}"],
            fields={"root": str(root), "epochs": 5, "run_id": "r"},
        )
        self.artifacts = Artifacts(LocalStore(root))
        self.log = RunLog(self.artifacts.store, "r")
        self.sent: list[int] = []
        self.away: str | None = None
        self.fails_at: int | None = None
        self.error: Exception = MlflowException(
            "API request to http://ann:hunter2@host failed: ann:hunter2"
        )
        tracking._missed.clear()
        monkeypatch.setattr(tracking, "unreachable", lambda uri: self.away)
        monkeypatch.setattr(tracking, "open_client", lambda *_: None)
        monkeypatch.setattr(tracking, "_log_epoch", self._log)

    def _log(
        self, client: Any, config: Any, run: RunLog, epoch: int, key: str, artifacts: Any
    ) -> None:
        if epoch == self.fails_at:
            raise self.error
        self.sent.append(epoch)
        run.note_key(epoch, TRACKED, tracking._noted(config, key, artifacts))

    def publish(self, epoch: int) -> None:
        key = f"{epoch:064d}"
        self.log.note_key(epoch, LAST, key)
        ref = ArtifactRef(stage=LAST, key=key, digest="d" * 64)
        tracking.track(self.config, epoch, ref, self.artifacts)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch, "http://host:1")


def test_what_was_missed_is_logged_first_and_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.publish(0)
    stage.away = "no answer"
    with caplog.at_level(logging.WARNING):
        for epoch in (1, 2):
            stage.publish(epoch)
    assert stage.sent == [0]
    assert "http://host:1: no answer; the run goes on. Not logged yet: epochs 1, 2." in caplog.text
    stage.away = None
    stage.publish(3)
    assert stage.sent == [0, 1, 2, 3]
    for epoch in range(4):  # the same command again
        stage.publish(epoch)
    assert stage.sent == [0, 1, 2, 3]


def test_a_run_that_is_logged_elsewhere_from_now_on_is_logged_there_whole(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def logged_to(uri: str, *epochs: int) -> list[int]:
        tracking_of = stage.config.tracking.model_copy(update={"uri": uri or None})
        stage.config = stage.config.model_copy(update={"tracking": tracking_of})
        stage.sent.clear()
        for epoch in epochs:
            stage.publish(epoch)
        return list(stage.sent)

    monkeypatch.delenv(mlflow_client.URI_VARIABLE, raising=False)
    assert logged_to("", 0, 1) == [0, 1]
    assert logged_to("http://host:1", 0, 1, 2) == [0, 1, 2]
    assert logged_to("http://host:1/", 0, 1, 2) == []
    stage.away = "no answer"
    assert logged_to("http://other:1", 0, 1, 2) == []
    assert tracking.not_logged(stage.config) == [0, 1, 2]  # so the closing text says


@mutation(
    "people hear after each epoch that MLflow is away", "tasks/tracking/news.py",
    "        _away.add(run)\n", "",
)  # fmt: skip
def test_people_hear_once_that_the_server_is_away_and_once_that_it_is_back(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*epochs: int) -> list[str]:
        for epoch in epochs:
            stage.publish(epoch)
        return capsys.readouterr().out.splitlines()

    def closing(quiet: bool = False) -> str:
        RunView(stage.config, quiet=quiet).finish(1.0, 2.0)
        return " ".join(capsys.readouterr().out.split())

    with RunView(stage.config, quiet=False):
        assert len(told(0)) == 1  # the line of the run
        stage.away = "no answer"
        assert told(1, 2) == [
            "MLflow at http://host:1: no answer; the run goes on, and is logged there when it is "
            "back"
        ]
        assert "genenv resume r --root " in closing()
        assert "logs epochs 1, 2 to MLflow at http://host:1 once it is back" in closing()
        assert json.loads(closing(quiet=True))["not_logged"] == [1, 2]
        assert "**Warning:** MLflow was away, and lacks epochs 1, 2" in summary(
            stage.config, {}, "", ""
        )
        stage.away = None
        assert told(3, 4) == ["MLflow at http://host:1 is back: epochs 1, 2, 3 logged"]
        said = closing()
        assert "metrics and model versions: http://host:1" in said and "resume" not in said
        stage.away = "no answer"
        for _ in range(2):  # each command says so
            assert len(told(0, 5)) == 1


@mutation(
    "the closing text names a database that does not exist", "flows/cli/runs/live.py",
    'if not (home / "mlflow" / "mlflow.db").exists():', "if False:",
)  # fmt: skip
def test_the_closing_text_names_the_tracking_that_was_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def closing(*overrides: str) -> str:
        given = {"root": str(tmp_path), "run_id": "r"}
        config = resolve("tiny", overrides=list(overrides), fields=given)
        RunView(config, quiet=False).finish(1.0, 2.0)
        return capsys.readouterr().out.replace("\n", "").partition("ORDER BY 1")[2]

    assert "mlflow" not in closing()  # ended before there was a database
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "mlflow.db").touch()
    assert f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow/mlflow.db" in closing()
    assert "mlflow" not in closing("tracking.enabled=false").replace(str(tmp_path), "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://host/db?user=a&token=hunter2")
    other = closing()
    assert "database postgresql://host/db" in other and "hunter2" not in other
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:hunter2@host:5000")
    assert "metrics and model versions: http://host:5000" in closing()


def test_the_closing_text_shows_brackets_of_a_root_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "[bold]"
    (root / "mlflow").mkdir(parents=True)
    (root / "mlflow" / "mlflow.db").touch()
    config = resolve("tiny", fields={"root": str(root), "run_id": "r"})
    RunView(config, quiet=False).finish(1.0, 2.0)
    said = "".join(capsys.readouterr().out.split())  # wherever lines are broken
    assert f"everythingisin{root};next" in said
    assert said.count(f"--root'{root}'") == 4 and f"sqlite:///{root}/mlflow" in said


def test_a_later_process_finds_what_is_missing(stage: Stage) -> None:
    stage.away = "no answer"
    for epoch in range(3):
        stage.publish(epoch)
    tracking._missed.clear()
    stage.away = None
    stage.publish(4)  # of one epoch alone
    assert stage.sent == [0, 1, 2, 4]


def test_a_server_that_fails_in_between_is_a_warning(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.away = "no answer"
    for epoch in range(2):
        stage.publish(epoch)
    stage.away, stage.fails_at = None, 1
    with caplog.at_level(logging.WARNING):
        stage.publish(2)
    assert stage.sent == [0]
    assert "Not logged yet: epochs 1, 2" in caplog.text
    stage.fails_at = None
    stage.publish(3)
    assert stage.sent == [0, 1, 2, 3]


@mutation("a database that is full ends a run", "tasks/tracking/track.py",
          "(MlflowException, requests.RequestException, SQLAlchemyError, OSError)",
          "(requests.RequestException,)")  # fmt: skip
def test_a_database_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path, monkeypatch, "sqlite:////somewhere/mlflow.db")
    full = sqlite3.OperationalError("database or disk is full")
    kinds = [
        MlflowException("(sqlite3.OperationalError) database or disk is full\n[SQL: INSERT x]"),
        OperationalError("DROP TABLE t", {"password": "secret"}, full),
        OSError(28, "No space left on device"),
    ]
    for epoch, error in enumerate(kinds):
        stage.fails_at, stage.error = 0, error
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            stage.publish(epoch)
        assert f"{DISK} ({type(error).__name__}: " in caplog.text
        assert "the run goes on. Not logged yet: epoch" in caplog.text
        assert "SQL:" not in caplog.text and "secret" not in caplog.text
    stage.fails_at = None
    stage.publish(3)
    assert stage.sent == [0, 1, 2, 3]


@mutation(
    "a password in tracking.uri is taken", "genenv_core/config/sections/tracking.py",
    "        if shown or re.search(", "        if re.search(",
)  # fmt: skip
@mutation(
    "a password is shown", "tasks/tracking/client.py",
    'return re.sub("([?&](?:password|token)=)[^&]*", r"\\1***", bare)',
    'return re.sub("([?&](?:password|token)=)[^&]*", r"\\1***", uri)',
)  # fmt: skip
@pytest.mark.parametrize(
    ("uri", "bare"),
    [
        ("http://ann:hunter2@host:5000/x", "http://host:5000/x"),
        ("https://hunter2@host/a@b", "https://host/a@b"),
        ("postgresql://ann:hunter2/x@y@host/db", "postgresql://host/db"),
        (
            "postgresql://host/db?user=ann&password=hunter2",
            "postgresql://host/db?user=ann&password=***",
        ),
    ],
)
def test_passwords_are_refused_and_never_shown(uri: str, bare: str) -> None:
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_PASSWORD") as refused:
        resolve("tiny", overrides=[f"tracking.uri={uri}"])
    assert "holds a password" in str(refused.value)
    assert mlflow_client.shown(uri) == bare
    error = RuntimeError("x" * 270 + uri)  # cut in the middle of it
    assert "hunt" not in mlflow_client.scrubbed(error, uri)


@pytest.mark.parametrize(
    "uri", ["postgresql://ann@host/db", "sqlite:////a:b/c@d", "http://h:1/a@b"]
)
def test_a_uri_without_a_password_is_accepted(uri: str) -> None:
    assert resolve("tiny", overrides=[f"tracking.uri={uri}"]).tracking.uri == uri
    assert mlflow_client.shown(uri) == uri.replace("ann@", "")


def test_errors_are_told_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "opensesame")
    error = RuntimeError("401 for http://ann:hunter2@host\nwith opensesame and hunter2")
    shown = mlflow_client.scrubbed(error, "http://ann:hunter2@host")
    assert shown == "RuntimeError: 401 for http://***@host with *** and ***"


def test_the_configuration_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    none, given = resolve("tiny"), resolve("tiny", overrides=["tracking.uri=http://a:1"])
    assert mlflow_client.tracking_uri(none, tmp_path) == f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://b:2")
    assert mlflow_client.tracking_uri(none, tmp_path) == "http://b:2"
    assert mlflow_client.tracking_uri(given, tmp_path) == "http://a:1"


class _Answers(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/base/health" else 599)
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def http_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://ann:hunter2@127.0.0.1:{server.server_port}/base/"
    server.shutdown()
    server.server_close()


def test_what_counts_as_away(http_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mlflow_client.unreachable("sqlite:////nowhere") is None
    for status, away in ((200, None), (401, None), (404, None), (503, "it answers 503")):
        monkeypatch.setattr(_Answers, "status", status)
        problem = mlflow_client.unreachable(http_server)
        assert problem is None if away is None else str(problem).startswith(away)
    assert "no answer" in str(mlflow_client.unreachable("http://127.0.0.1:9"))


@pytest.mark.parametrize("uri", ["", "postgresql://ann:hunter2@host/mlflow"])
def test_uploads_need_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    given = {"root": str(tmp_path)}
    config = resolve("tiny", overrides=["tracking.upload=true"], fields=given)
    with pytest.raises(ConfigError, match=r"tracking.upload true: .* give tracking.uri") as refused:
        mlflow_client.check_tracking(config)
    assert "hunter2" not in str(refused.value)
    mlflow_client.check_tracking(resolve("tiny", fields=given))
    off = ["tracking.upload=true", "tracking.enabled=false"]
    mlflow_client.check_tracking(resolve("tiny", overrides=off, fields=given))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    mlflow_client.check_tracking(config)


@pytest.mark.slow
def test_runs_of_one_name_in_two_roots_are_two_and_a_copy_is_one(tmp_path: Path) -> None:
    configs = [
        resolve(
            "tiny",
            overrides=[f"tracking.uri=sqlite:///{tmp_path}/mlflow.db"],
            fields={"root": str(tmp_path / name), "run_id": "r"},
        )
        for name in ("one", "two")
    ]
    client = mlflow_client.open_client(configs[0], tmp_path)
    old = client.create_run("0", tags={tracking.RUN_TAG: "r"}).info.run_id  # of an earlier genenv
    client.rename_experiment("0", configs[0].tracking.experiment)
    logs = [RunLog(LocalStore(Path(config.root)), "r") for config in configs]
    for config, log in zip(configs, logs, strict=True):
        log.open(dump(config), datetime.now(UTC))
    made = [
        tracking._mlflow_run(client, config, log)
        for _ in range(2)
        for config, log in zip(configs, logs, strict=True)
    ]
    assert made[0] == old and made[:2] == made[2:] and made[0] != made[1]
    copy_run(LocalStore(Path(configs[1].root)), LocalStore(tmp_path / "copy"), "r")
    copied = RunLog(LocalStore(tmp_path / "copy"), "r")
    assert tracking._mlflow_run(client, configs[1], copied) == made[1]


NAMES = "tasks/tracking/names.py"
ODD = [
    "team/grpo",
    "/Users/ann@corp.org/grpo",
    "a:b",
    "..",
    "../x",
    "bob's",
    'say "x"',
    "a\\b",
    " ",
]


@mutation("a model is named as its experiment", NAMES,
          '_NOT_IN_MODELS.sub("-", experiment)', "experiment", by="[team/grpo]")  # fmt: skip
@pytest.mark.parametrize("experiment", ["genenv", "a b_(1)+=@-.c", "é🦆", *ODD, "x" * 200])
def test_an_experiment_has_models_that_the_registry_takes(experiment: str) -> None:
    config = resolve(
        "tiny", overrides=[f"tracking.experiment={json.dumps(experiment, ensure_ascii=False)}"]
    )
    assert config.tracking.experiment == experiment
    _validate_experiment_name(experiment)
    for policy in ("agent", "env"):
        name = model_name(experiment, policy)
        _validate_model_name(name)
        search = f"name = '{name}' and run_id = '{'a' * 32}'"
        parsed = SearchModelVersionUtils.parse_search_filter(search)
        assert [one["value"] for one in parsed] == [name, "a" * 32]
    assert model_name("genenv", "agent") == "genenv-agent"
    assert model_name("team/grpo", "env") == "team-grpo-env"


@mutation(
    "an error of MLflow's database is told twice", "tasks/tracking/client.py",
    '    "mlflow.store.db.utils": logging.CRITICAL,\n', "",
)  # fmt: skip
def test_an_error_of_the_database_is_raised_and_not_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mlflow_client.open_client(resolve("tiny", overrides=["tracking.uri=http://h:1"]), tmp_path)
    session = _get_managed_session_maker(sessionmaker(create_engine("sqlite://")), "sqlite")
    with pytest.raises(MlflowException, match="no such table"), session() as opened:
        opened.execute(sql_text("SELECT * FROM tags"))
    assert capfd.readouterr() == ("", "")


def test_an_experiment_of_several_lines_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tracking\.experiment"):
        resolve("tiny", overrides=['tracking.experiment="a\\nb"'])


@mutation("settings are logged under their own names", NAMES,
          '_NOT_IN_PARAMETERS.sub("_", name)', "name")  # fmt: skip
@mutation("two settings are one parameter", NAMES,
          "if fitted in names.values():", "if False:")  # fmt: skip
def test_settings_have_names_that_mlflow_takes() -> None:
    given = ["domain.options.a=b", "domain.options.a_b", "domain.options.a#b", "teacher.request./x",
             "domain.options.a//b", "domain.options.../..", "domain.options.é ü", "epochs",
             "domain.options." + "k" * 300, "domain.options." + "k" * 301]  # fmt: skip
    names = parameter_names(given)
    assert set(names) == set(given)
    assert len(set(names.values())) == len(given)
    for name in names.values():
        _validate_param(name, "1")
    assert names["epochs"] == "epochs"
    assert names["domain.options.a_b"] == "domain.options.a_b"  # a name that fits stays


@pytest.mark.parametrize("command", [["work-pool"], ["up", "--pool"], ["deploy", "--gpu-pool"]])
@pytest.mark.parametrize("name", ["a/b", "", "inline", "-x", "x" * 64, "a%b"])
def test_a_work_pool_that_a_run_cannot_name(command: list[str], name: str) -> None:
    before = ["--"] if command == ["work-pool"] else []
    end = CliRunner().invoke(cli, [*command, *before, name])
    assert isinstance(end.exception, ConfigError)
    assert "work pool" in str(end.exception) and "placement.*" in str(end.exception)
