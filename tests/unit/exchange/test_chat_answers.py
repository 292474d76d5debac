"""Answers in the forms of servers, written after their documentation.

Invariants: of each server's form, text, calls, end and counts are read; what does not matter for
the answer does no harm; an error under the status 200 is a fault with the status of its code or
kind; a prompt that exceeds the context is known by the words of each server; what is neither an
answer nor an error is no answer of the model.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from genenv_core.domains.tool_calls import canonical, said
from genenv_core.exchange.chat_answers import EndpointFault, Reply, read_answer
from genenv_core.types import FinishReason
from tests.mutations import mutation

CHAT_ANSWERS = "genenv_core/exchange/chat_answers.py"
STOP, LENGTH, ERROR = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR
CALL = {"name": "find", "arguments": '{"x": 1}'}


def answered(message: Any, finish: Any = "stop", **more: Any) -> dict[str, Any]:
    """Return a body with this message and the usual counts."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}} | more


def calling(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)} | more


def read(body: Any) -> Reply:
    found = read_answer(200, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert isinstance(found, Reply), found
    return found


FORMS: dict[str, tuple[dict[str, Any], str, list[Any], FinishReason, tuple[int, int]]] = {
    "OpenAI": (
        answered(
            {"role": "assistant", "content": "hi", "refusal": None, "annotations": []},
            id="chatcmpl-1",
            object="chat.completion",
            service_tier="default",
            system_fingerprint=None,
            usage={
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        ),
        "hi", [], STOP, (5, 2),
    ),
    "OpenAI, refusal": (
        answered({"role": "assistant", "content": None, "refusal": "I cannot"}),
        "I cannot", [], STOP, (5, 2),
    ),
    "OpenAI, function_call": (
        answered({"content": None, "function_call": CALL}, "function_call"),
        "", [CALL], STOP, (5, 2),
    ),
    "vLLM": (
        answered(
            calling(
                {"id": "chatcmpl-tool-1", "type": "function", "function": CALL},
                reasoning_content="let me see",
            ),
            "tool_calls",
            prompt_logprobs=None,
            kv_transfer_params=None,
        ),
        "", [CALL], STOP, (5, 2),
    ),
    "TGI": (
        answered(
            {"role": "assistant", "content": "hi"}, "eos_token", system_fingerprint="3.0-sha"
        ),
        "hi", [], STOP, (5, 2),
    ),
    "TGI, a call": (
        answered(
            calling(
                {"id": "0", "type": "function",
                 "function": {"description": None, "name": "find", "arguments": {"x": 1}}}
            )
        ),
        "", [{"name": "find", "arguments": {"x": 1}}], STOP, (5, 2),
    ),
    "llama.cpp": (
        answered(
            {"role": "assistant", "content": "hi"},
            "length",
            timings={"prompt_ms": 1.5},
            usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        ),
        "hi", [], LENGTH, (5, 2),
    ),
    "llama.cpp, no id": (
        answered(calling({"id": "", "function": CALL}, content=""), "tool_calls"),
        "", [CALL], STOP, (5, 2),
    ),
    "Ollama": (
        answered({"role": "assistant", "content": "hi"}, None, usage=None),
        "hi", [], STOP, (0, 0),
    ),
    "Ollama, no arguments": (
        answered(calling({"function": {"index": 0, "name": "now", "arguments": ""}})),
        "", [{"name": "now", "arguments": ""}], STOP, (5, 2),
    ),
    "OpenRouter": (
        answered(
            {"role": "assistant", "content": "hi", "reasoning": "so", "reasoning_details": [{}]},
            "stop",
            provider="Some",
            error=None,
        ),
        "hi", [], STOP, (5, 2),
    ),
    "SGLang": (
        answered(
            {"role": "assistant", "content": "hi", "tool_calls": None},
            "stop",
            metadata={"weight_version": "default"},
            usage={"prompt_tokens": 5, "completion_tokens": None},
        ),
        "hi", [], STOP, (5, 0),
    ),
    "LiteLLM": (
        answered({"content": "hi", "function_call": None, "tool_calls": None}, "stop", usage={}),
        "hi", [], STOP, (0, 0),
    ),
    "Anthropic's parts": (
        answered(
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "so"},
                    {"type": "text", "text": "hi "},
                    {"type": "text", "text": "there"},
                    {"type": "tool_use", "id": "t", "name": "find", "input": {"x": 1}},
                ],
            },
            "tool_use",
            usage={"input_tokens": 5, "output_tokens": 2},
        ),
        "hi there", [{"name": "find", "arguments": {"x": 1}}], STOP, (5, 2),
    ),
    "Mistral": (
        answered(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]},
                    {"type": "text", "text": "hi"},
                ],
                "tool_calls": None,
                "prefix": False,
            },
            "model_length",
        ),
        "hi", [], LENGTH, (5, 2),
    ),
    "Together": (
        answered({"role": "assistant", "content": "hi", "tool_calls": []}, "eos", prompt=[]),
        "hi", [], STOP, (5, 2),
    ),
    "Gemini": (
        answered({"role": "assistant"}, "malformed_function_call"),
        "", [], STOP, (5, 2),
    ),
    "Azure": (
        answered(
            {"content": "h"}, "content_filter", prompt_filter_results=[{"prompt_index": 0}]
        ),
        "h", [], ERROR, (5, 2),
    ),
    "completions": (
        {"choices": [{"text": "hi", "finish_reason": "stop_sequence"}]},
        "hi", [], STOP, (0, 0),
    ),
}  # fmt: skip


@mutation(
    "an unknown word for an end is the model's failure", CHAT_ANSWERS,
    "if answered or word in ENDED:", "if word in ENDED:",
)  # fmt: skip
@mutation(
    "Mistral's bound of tokens is an end", CHAT_ANSWERS,
    '"max_length", "model_length", "token', '"max_length", "token',
)  # fmt: skip
@mutation(
    "content in parts is no answer", CHAT_ANSWERS,
    "if isinstance(content, list | dict):", "if isinstance(content, dict):",
)  # fmt: skip
@pytest.mark.parametrize("form", FORMS)
def test_answers_of_servers_are_read(form: str) -> None:
    body, text, calls, finish, counts = FORMS[form]
    reply = read(body)
    assert (reply.text, list(reply.calls), reply.finish) == (text, calls, finish)
    assert (reply.prompt_tokens, reply.tokens) == counts
    assert bool(reply.error) is (finish is ERROR)


@pytest.mark.parametrize("arguments", ['{"x": 1}', {"x": 1}])
def test_calls_reach_the_domain(arguments: Any) -> None:
    reply = read(answered(calling({"function": {"name": "find", "arguments": arguments}})))
    (call,) = said(canonical(reply.text, reply.calls)).calls
    assert (call.name, call.arguments) == ("find", {"x": 1})


@mutation(
    "half a character is no answer", CHAT_ANSWERS,
    "        storable(text),", "        text,",
)  # fmt: skip
def test_odd_bytes_do_no_harm() -> None:
    plain = json.dumps(answered({"content": "hi"})).encode()
    for data in (
        b"\xef\xbb\xbf" + plain,
        b"\n\n  " + plain,
        plain.replace(b'"hi"', b'"\\ufeffhi"'),
        plain.decode().encode("utf-16"),
        plain.replace(b'"index": 0', b'"index": NaN, "new": [[{}]]'),
    ):
        assert read(data).text == "hi"
    assert read(plain.replace(b"hi", rb"hi \ud83d")).text == "hi ?"
    assert read(plain.replace(b"hi", b"hi \xf0\x9f")).text == "hi \ufffd"
    assert read(answered({"content": "hi"}, usage={"prompt_tokens": -1})).prompt_tokens == 0


ERRORS = {
    "OpenRouter": ({"error": {"code": 502, "message": "no provider", "metadata": {}}}, 502),
    "OpenRouter, in the choice": (
        answered({"content": "ha"}, "error") | {"choices": [{
            "finish_reason": "error", "message": {"content": "ha"},
            "error": {"code": 429, "message": "no provider"}}]}, 429),
    "a gateway": ({"error": {"message": "no provider"}}, 500),
    "OpenAI": ({"error": {"message": "no provider", "type": "server_error", "code": None}}, 500),
    "OpenAI, a key": (
        {"error": {"message": "no provider", "type": "invalid_request_error",
                   "code": "invalid_api_key"}}, 401),
    "vLLM": ({"object": "error", "message": "no provider", "type": "BadRequestError",
              "param": None, "code": 400}, 400),
    "SGLang": ({"object": "error", "message": "no provider", "type": "NotFound", "code": "404"},
               404),
    "Mistral": ({"object": "error", "message": "no provider", "type": "rate_limited",
                 "code": "1300"}, 429),
    "TGI": ({"error": "no provider", "error_type": "overloaded"}, 503),
    "Ollama": ({"error": "no provider"}, 500),
    "Anthropic": ({"type": "error", "error": {"type": "rate_limit_error",
                                              "message": "no provider"}}, 429),
    "Gemini": ([{"error": {"code": 503, "message": "no provider", "status": "UNAVAILABLE"}}], 503),
    "FastAPI": ({"detail": [{"loc": ["body"], "msg": "no provider"}]}, 500),
    "LiteLLM": ({"error": {"message": "no provider", "type": "None", "code": "503"}}, 503),
    "llama.cpp": ({"error": {"code": 503, "message": "no provider",
                             "type": "unavailable_error"}}, 503),
}  # fmt: skip


@mutation(
    "an error of a choice counts as its answer", CHAT_ANSWERS,
    "for holder in (body, choice):", "for holder in (body,):",
)  # fmt: skip
@pytest.mark.parametrize("form", ERRORS)
def test_errors_inside_of_an_answer_have_their_status(form: str) -> None:
    body, status = ERRORS[form]
    assert read_answer(200, json.dumps(body).encode()) == EndpointFault(status, "no provider", True)


@pytest.mark.parametrize("word", ["error", "abort", "insufficient_system_resource"])
def test_an_answer_that_broke_off_is_none(word: str) -> None:
    found = read_answer(200, json.dumps(answered({"content": "ha"}, word)).encode())
    assert found == EndpointFault(503, f"ended with {word}", True)


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000",
        "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "the request exceeds the available context size, try increasing it",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 9000",
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 4000",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "litellm.ContextWindowExceededError: no",
        "Please reduce the length of the messages or completion.",
    ],
)
def test_prompts_without_room_are_known_by_the_words_of_servers(words: str) -> None:
    assert EndpointFault(400, words).too_long and EndpointFault(400, words, inside=True).too_long
    assert (
        not EndpointFault(429, words).too_long
        and not EndpointFault(400, "temperature is too large").too_long
    )


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("", "it is empty"),
        ("<html>busy</html>", "no JSON.*html"),
        ('{"choices": [{"message": {"con', "no JSON"),
        ("[" * 5000, "no JSON|recursion"),
        ('data: {"choices": []}\n\ndata: [DONE]', "it is a stream: remove `stream`"),
        ("[]", "the whole: list"),
        ("{}", "choices: there is none"),
        ('{"choices": []}', "choices: there is none"),
        ('{"choices": [null]}', "choices: there is none"),
        ('{"choices": [{"finish_reason": "stop"}]}', r"choices\.0\.message"),
        ('{"choices": [{"message": {"content": 7}}]}', r"content: int, expected a text"),
        ('{"choices": [{"message": {"content": [{"type": "image_url"}]}}]}', "'image_url'"),
        ('{"choices": [{"message": {"content": null}, "finish_reason": null}]}', "no content"),
    ],
)
def test_what_is_neither_an_answer_nor_an_error_is_named(body: str, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        read_answer(200, body.encode())
    assert isinstance(read_answer(503, body.encode()), EndpointFault)
