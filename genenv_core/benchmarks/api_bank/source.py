"""The source of API-Bank's data: the directory `api-bank` of DAMO-ConvAI, at two commits.

The older commit is the last one with the test data, which moved to the hub later. `tool_docs.py`
derives the tools' descriptions from the official classes without running them.
"""

from __future__ import annotations

from genenv_core.benchmarks.api_bank.loading import DIALOGUES, DOCS, REQUESTS
from genenv_core.benchmarks.downloads.sources import BenchmarkSource, RepoFile, RepoFolder, ToolDocs

_REPO = "AlibabaResearch/DAMO-ConvAI"
_COMMIT = "483554eae102996f5ec1f4feab4e78ef29c2a394"
_WITH_TEST_DATA = "5d5a2d40b2e6b6998a06961cc43ad0a8c069b153"

_FOLDERS = {
    "lv1": "fcd3eec198901b04d2c376eba123d24b5a02b4c2",
    "lv2": "3c080410babbf923634b4c6a89e2d8122cdc6857",
}
_FILES = {
    "init_database/Account.json": (_COMMIT, "bec3f0d9a35132110ba69955eed4747bd97f8821"),
    "init_database/Agenda.json": (_COMMIT, "d5655526416936ae20685eaefa4c1114b2908566"),
    "init_database/Reminder.json": (_COMMIT, "9b45f6f5fb7eef66e4b18207023004e325373558"),
    "init_database/SearchEngine.json": (_COMMIT, "17130deac117a6f599bcd67421dc811b8a48f310"),
    REQUESTS: (_WITH_TEST_DATA, "52f9a648cb5da0d72c2e3abc3707ef54fbe7a461"),
}

SOURCE = BenchmarkSource(
    parts=(
        *(
            RepoFolder(DIALOGUES[level], _REPO, _COMMIT, f"api-bank/{DIALOGUES[level]}", git_id,
                       most=20_000_000)
            for level, git_id in _FOLDERS.items()
        ),
        *(
            RepoFile(to, _REPO, commit, f"api-bank/{to}", git_id, most=5_000_000)
            for to, (commit, git_id) in _FILES.items()
        ),
        ToolDocs(
            DOCS,
            _REPO,
            _COMMIT,
            {"lv1_lv2": "api-bank/apis", "lv3": "api-bank/lv3_apis"},
            sha256="e02a1a97ddce2f624db43d1cf3efd94bb7547adf21121b38f7162ccccaa8cb18",
            most=20_000_000,
        ),
    ),
    items={
        "lv1 calls": 399,
        "lv1 responses": 375,
        "lv2 calls": 135,
        "lv2 responses": 103,
        "lv3 calls": 245,
        "lv3 responses": 50,
    },
)  # fmt: skip
