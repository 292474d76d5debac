"""The source of BFCL's data: the wheel of its package, whose digest PyPI publishes."""

from __future__ import annotations

from genenv_core.benchmarks.bfcl.rows import ANSWERS, QUESTIONS
from genenv_core.benchmarks.bfcl.turns.rows import DOCS
from genenv_core.benchmarks.downloads.sources import BenchmarkSource, Wheel

_QUESTIONS = {
    "irrelevance": "0077629949f2d52734cef2f110b0d040d8c47554",
    "live_irrelevance": "547f60220b546ea5c864815dbb310b2f46ec0f43",
    "live_multiple": "b7c108f2edc86563fd3e1363e5f6fd961452d142",
    "live_parallel": "fb88e7e7f12cb0e557750a043833bab87c6f98b1",
    "live_parallel_multiple": "54997d2e1fa4061d5701f6f42079c95102f8c09e",
    "live_relevance": "1b0190995f4554b980da2dd7ab15195f4e047e62",
    "live_simple": "e8f4b8d33c07753affc77bfc4a646f94109de5af",
    "multi_turn_base": "656fbd5e56969373353cd58b880234a6cc4edc99",
    "multi_turn_long_context": "bc6584c32771f9f14168a2802e6b454e480ace4e",
    "multi_turn_miss_func": "28e7987841719aec4e4f3f3f4b6c2f1915c831f3",
    "multi_turn_miss_param": "2e87caf87fb48f7807a18610311bdfa1138d0599",
    "multiple": "83643fa853e7a29a50e7303b0279284c37dd63c8",
    "parallel": "04040475c8c77facf4f3e75e7079607c25c557d2",
    "parallel_multiple": "832039d6758e2569d65342b3fc9524924a03832a",
    "simple_java": "eff995f128c757f635154dfc4e63678d23dbe5b2",
    "simple_javascript": "0cf350ff1f6d61b05f1cb1b8105fa6b29edd4a27",
    "simple_python": "356a0db61e54eb1d92d8e10d014463cf2eb513cc",
}
_ANSWERS = {
    "live_multiple": "b2f4c71547d3a534e2e40231db14943bfa81cc74",
    "live_parallel": "2b62cca73e4b6877e2026934e667d0781d9978e9",
    "live_parallel_multiple": "df36b6020f21ef6f38ebb4a8c6e90206915985af",
    "live_simple": "2c4778cee08e5ce7b236861de9a927d3ea7cde1f",
    "multi_turn_base": "3ee85fcd5e8cccca24e2347e464b58fd1b9f02a1",
    "multi_turn_long_context": "ec7f2711df89dc3ad667351e5349906c0a732912",
    "multi_turn_miss_func": "ec10a3566a613ddce8e05438425d40f6ec15fbfc",
    "multi_turn_miss_param": "94edb50ede0de76f35e937d4b96128857357d95b",
    "multiple": "1f2f1fbfd9b7c8859ef5a92d6c18b0a6b2bc2663",
    "parallel": "94c4be296d0fee3f7ae8863c4855783da563ca22",
    "parallel_multiple": "52b010cb01334c98456cc3ec0886dd85d51ec284",
    "simple_java": "bce120d34933ab61f868236d1cb56a088d9b0585",
    "simple_javascript": "36375f0e31ca5598a1b807ac3af342fe9d787376",
    "simple_python": "268c55641a21b51fc15730ce39ce906444a935a1",
}
_FUNCTIONS = {
    "gorilla_file_system": "b9a6d2d314febe8ccf201887ef87cfe081ffbf4e",
    "math_api": "52a911035a2b71390027e02af70c1abb904c71b3",
    "message_api": "a178734ad47f269571c877e6e433b26171516024",
    "posting_api": "2a8737a376640ba304c313d23d63049927f823eb",
    "ticket_api": "f8281657b64c4b6410a8590cc82b9584bc39729f",
    "trading_bot": "7dce37326156f65efc55df30db26064d68e8dc8c",
    "travel_booking": "95008945fa5a9bc104a77647e4990d1e36ce7ec5",
    "vehicle_control": "7139dfc3bf2646be8f71ac383760f28899b17f85",
}
_FILES = {
    **{f"{QUESTIONS}/BFCL_v4_{name}.json": git_id for name, git_id in _QUESTIONS.items()},
    **{f"{ANSWERS}/BFCL_v4_{name}.json": git_id for name, git_id in _ANSWERS.items()},
    **{f"{DOCS}/{name}.json": git_id for name, git_id in _FUNCTIONS.items()},
}


def _member(to: str) -> str:
    """Return the name of a file in the wheel, where the questions have no folder."""
    return f"bfcl_eval/data/{to.removeprefix(f'{QUESTIONS}/')}"


SOURCE = BenchmarkSource(
    parts=(
        Wheel(
            project="bfcl-eval",
            version="2026.3.23",
            file="bfcl_eval-2026.3.23-py3-none-any.whl",
            sha256="3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a",
            members={to: (_member(to), git_id) for to, git_id in _FILES.items()},
            most=20_000_000,
        ),
    ),
    items={
        "simple_python": 400,
        "simple_java": 100,
        "simple_javascript": 50,
        "multiple": 200,
        "parallel": 200,
        "parallel_multiple": 200,
        "irrelevance": 240,
        "live_simple": 258,
        "live_multiple": 1053,
        "live_parallel": 16,
        "live_parallel_multiple": 24,
        "live_irrelevance": 884,
        "live_relevance": 16,
        "multi_turn_base": 200,
        "multi_turn_miss_func": 200,
        "multi_turn_miss_param": 200,
        "multi_turn_long_context": 200,
    },
)
