"""What of its surroundings reaches a process that computes with a model.

Invariants: only listed variables pass; no variable of a launcher, of a training library or with a
secret is listed; each variable that changes arithmetic passes, and no other one counts as such;
processors of one kind have one name, and those of two kinds have two.
"""

from __future__ import annotations

import os

import pytest

from genenv_core.machine.surroundings import deciding, environment, processor, processor_of
from tests.mutations import mutation

SURROUNDINGS = "genenv_core/machine/surroundings.py"

AMD = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1
cpu MHz\t\t: 2596.140
flags\t\t: fpu fma avx avx2 avx512f syscall

processor\t: 1
vendor_id\t: another
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm sve
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd40
"""


@mutation("every variable passes", SURROUNDINGS, "if _is_one(name, names) and", "if name and")
@pytest.mark.parametrize(
    "name",
    [
        "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED",
        "FSDP_VERSION", "TORCHELASTIC_RUN_ID", "SLURM_PROCID", "SLURM_NTASKS", "PMI_RANK",
        "OMPI_COMM_WORLD_RANK", "CROSS_RANK", "FORK_LAUNCHED", "GENENV_LAUNCHER",
        "TORCH_COMPILE_DISABLE", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "OPENAI_API_KEY",
    ],
)  # fmt: skip
def test_no_variable_of_a_launcher_and_no_secret_passes(name: str) -> None:
    assert name not in environment({name: "1"})
    assert deciding({name: "1"}) == {}


@mutation(
    "a training process imports MLflow", SURROUNDINGS, "QUIET | passed | WITHOUT", "QUIET | passed"
)
def test_what_a_process_needs_passes_with_quiet_libraries() -> None:
    needed = {
        "PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "LD_LIBRARY_PATH": "/l", "https_proxy": "p",
        "CUDA_VISIBLE_DEVICES": "1", "HF_HOME": "/hf", "SSL_CERT_FILE": "/c", "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "2", "GENENV_CACHE_DIR": "/g", "PYTHONPATH": "/p",
    }  # fmt: skip
    quiet = {
        "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false", "DISABLE_MLFLOW_INTEGRATION": "TRUE"
    }  # fmt: skip
    assert environment(needed) == needed | quiet
    assert environment({"VLLM_LOGGING_LEVEL": "x", "VLLM": "y"}, ["VLLM_*"]) == {
        "VLLM_LOGGING_LEVEL": "x", **quiet
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "decides"),
    [
        ("ATEN_CPU_CAPABILITY", True),
        ("ONEDNN_DEFAULT_FPMATH_MODE", True),
        ("DNNL_MAX_CPU_ISA", True),
        ("MKL_CBWR", True),
        ("NVIDIA_TF32_OVERRIDE", True),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", True),
        ("CUBLAS_WORKSPACE_CONFIG", True),
        ("MKL_NUM_THREADS", False),
        ("ONEDNN_VERBOSE", False),
        ("PATH", False),
        ("CUDA_VISIBLE_DEVICES", False),
    ],
)
def test_variables_that_change_arithmetic_are_known_and_pass(name: str, decides: bool) -> None:
    assert deciding({name: "1"}) == ({name: "1"} if decides else {})
    assert environment({name: "1"})[name] == "1"


def test_a_processor_is_named_by_its_kind() -> None:
    assert processor_of(AMD) == "AuthenticAMD 25/17 3ad34352"
    same = AMD.replace("2596.140", "1500.000").replace("syscall", "").replace(": 1\n", ": 2\n")
    assert processor_of(same) == processor_of(AMD)
    for line, other in ((": 25", ": 26"), (": 17", ": 18"), ("AuthenticAMD", "X"), ("avx512f", "")):
        assert processor_of(AMD.replace(line, other)) != processor_of(AMD)
    assert processor_of(ARM).startswith("0x41 8/0xd40 ")
    assert processor_of(ARM.replace("sve", "")) != processor_of(ARM)


def test_this_machine_has_a_name() -> None:
    assert processor() and os.linesep not in processor()
