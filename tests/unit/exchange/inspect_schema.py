"""What Inspect's log schema says of the parts that we write: every field, and which are required.

Written down from its published models. The slow test compares this with the models of an installed
Inspect, so a field that it renames or begins to require is found.
"""

from __future__ import annotations

from typing import Any

REQUIRED: dict[str, set[str]] = {
    "EvalLog": {"eval"},
    "EvalSpec": {"created", "task", "dataset", "model", "config"},
    "EvalDataset": set(),
    "EvalConfig": set(),
    "EvalPlan": set(),
    "EvalResults": set(),
    "EvalScore": {"name", "scorer"},
    "EvalMetric": {"name", "value"},
    "EvalStats": set(),
    "EvalSample": {"id", "epoch", "input", "target"},
    "EvalSampleSummary": {"id", "epoch", "input", "target"},
    "EvalError": {"message", "traceback", "traceback_ansi"},
    "Score": {"value"},
    "ModelOutput": set(),
    "ModelUsage": set(),
    "ChatCompletionChoice": {"message"},
    "ChatMessageSystem": {"content"},
    "ChatMessageUser": {"content"},
    "ChatMessageAssistant": {"content"},
    "ChatMessageTool": {"content"},
    "ToolCall": {"id", "function", "arguments"},
    "ToolCallError": {"type", "message"},
}
"""Model -> the fields without which it cannot be read."""

KNOWN: dict[str, set[str]] = {
    "EvalLog": {"version", "status", "eval", "plan", "results", "stats"},
    "EvalSpec": {
        *("eval_id", "run_id", "created", "task", "task_id", "task_version", "task_args"),
        *("dataset", "model", "config", "packages", "metadata", "scorers"),
    },
    "EvalDataset": {"name", "samples", "shuffled"},
    "EvalConfig": {"epochs", "epochs_reducer"},
    "EvalPlan": {"name", "steps", "config"},
    "EvalResults": {"total_samples", "completed_samples", "scores"},
    "EvalScore": {"name", "scorer", "reducer", "scored_samples", "unscored_samples", "metrics"},
    "EvalMetric": {"name", "value", "params"},
    "EvalStats": {"started_at", "completed_at", "model_usage"},
    "EvalSample": {
        *("id", "epoch", "input", "target", "messages", "output", "scores", "metadata"),
        *("model_usage", "uuid", "turn_count", "error"),
    },
    "EvalSampleSummary": {
        *("id", "epoch", "input", "target", "scores", "metadata", "model_usage", "uuid"),
        *("completed", "message_count", "turn_count", "error"),
    },
    "EvalError": {"message", "traceback", "traceback_ansi"},
    "Score": {"value", "answer", "explanation", "metadata"},
    "ModelOutput": {"model", "choices", "completion", "usage"},
    "ModelUsage": {"input_tokens", "output_tokens", "total_tokens"},
    "ChatCompletionChoice": {"message", "stop_reason"},
    "ChatMessageSystem": {"id", "role", "content", "source", "metadata"},
    "ChatMessageUser": {"id", "role", "content", "source", "metadata"},
    "ChatMessageAssistant": {"id", "role", "content", "source", "tool_calls", "model"},
    "ChatMessageTool": {
        *("id", "role", "content", "source", "metadata"),
        *("tool_call_id", "function", "error"),
    },
    "ToolCall": {"id", "function", "arguments", "parse_error", "type"},
    "ToolCallError": {"type", "message"},
}
"""Model -> the fields that we use. Inspect ignores others, so a slip of the pen would go unseen."""

STOPPED = {"stop", "max_tokens", "model_length", "tool_calls", "content_filter", "unknown"}
MESSAGES = {
    "system": "ChatMessageSystem",
    "user": "ChatMessageUser",
    "assistant": "ChatMessageAssistant",
    "tool": "ChatMessageTool",
}


def check(model: str, value: dict[str, Any]) -> None:
    """Assert that a value has the fields of a model, and none that it does not know."""
    assert value.keys() >= REQUIRED[model], f"{model}: {REQUIRED[model] - value.keys()} missing"
    assert value.keys() <= KNOWN[model], f"{model}: unknown {value.keys() - KNOWN[model]}"


def check_header(header: dict[str, Any]) -> None:
    check("EvalLog", header)
    assert header["version"] == 2 and header["status"] == "success"
    check("EvalSpec", header["eval"])
    check("EvalDataset", header["eval"]["dataset"])
    check("EvalConfig", header["eval"]["config"])
    check("EvalPlan", header["plan"])
    check("EvalStats", header["stats"])
    check("EvalResults", header["results"])
    for score in header["results"]["scores"]:
        check("EvalScore", score)
        for name, metric in score["metrics"].items():
            check("EvalMetric", metric)
            assert name == metric["name"]
    for usage in header["stats"]["model_usage"].values():
        check("ModelUsage", usage)


def check_sample(sample: dict[str, Any]) -> None:
    check("EvalSample", sample)
    assert sample["epoch"] >= 1 and isinstance(sample["target"], str)
    given = sample["input"]
    for message in [*sample["messages"], *(given if isinstance(given, list) else [])]:
        check_message(message)
    check("ModelOutput", sample["output"])
    check("ModelUsage", sample["output"]["usage"])
    for choice in sample["output"]["choices"]:
        check("ChatCompletionChoice", choice)
        assert choice["stop_reason"] in STOPPED
        check_message(choice["message"])
        assert choice["message"]["role"] == "assistant"
    _check_scores(sample)
    if "error" in sample:
        check("EvalError", sample["error"])


def check_summary(summary: dict[str, Any]) -> None:
    check("EvalSampleSummary", summary)
    assert isinstance(summary.get("error", ""), str)
    _check_scores(summary)


def check_message(message: dict[str, Any]) -> None:
    check(MESSAGES[message["role"]], message)
    assert isinstance(message["content"], str)
    for call in message.get("tool_calls", ()):
        check("ToolCall", call)
        assert isinstance(call["arguments"], dict) and call["type"] == "function"
    if "error" in message:
        check("ToolCallError", message["error"])


def _check_scores(sample: dict[str, Any]) -> None:
    for score in sample["scores"].values():
        check("Score", score)
        assert isinstance(score["value"], float) or score["value"] in ("C", "I")
