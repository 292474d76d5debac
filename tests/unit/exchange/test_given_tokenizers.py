"""Tokenizers and chat templates of given models, as their files have them.

Invariants: a tokenizer whose rules transformers would replace without a word is read as its file
has it, and an update saves that; of several chat templates the one for tools is used where there
are tools, in prompts and between turns, and neither a copy nor an update loses one; a turn of a
warm start has the ids that the template's own turn has.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Prepend, Replace, Sequence
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.engines import tokenizers as tokenizers_module
from genenv_core.engines.tokenizers import MORE_TEMPLATES, PROBES, load_tokenizer
from genenv_core.errors import ModelError
from genenv_core.exchange.given_models import model_folder, take_over
from genenv_core.play.chat import ChatFormat
from genenv_core.training.policies.weights import load_policy
from genenv_core.training.warm_start.models import build_tokenizer
from genenv_core.types import Message, Policy
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, tiny_model, tiny_tokenizer

GIVEN = "genenv_core/exchange/given_models.py"
TOKENIZERS = "genenv_core/engines/tokenizers.py"
WEIGHTS = "genenv_core/training/policies/weights.py"


def checkpoint(folder: Path, template: str | None = CHATML) -> Path:
    tokenizer = tiny_tokenizer(template)
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def changed(folder: Path, name: str, **values: Any) -> None:
    """Change fields of a JSON file of a checkpoint."""
    config = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(config | values))


@mutation(
    "a given model's tokenizer may be replaced", TOKENIZERS,
    "= all(_ids(stored, text) == _ids(taken, text) for text in probes)", "= True",
)  # fmt: skip
@mutation(
    "an update writes another tokenizer than it was given", WEIGHTS,
    "    tokenizer = load_tokenizer(checkpoint)\n",
    "    from transformers import AutoTokenizer\n\n"
    "    tokenizer = AutoTokenizer.from_pretrained(checkpoint)\n",
)  # fmt: skip
def test_a_tokenizer_that_transformers_replaces_is_read_as_its_file_has_it(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "foreign")  # a qwen2
    own = build_tokenizer([PROBES[0]] * 9)
    own.save_pretrained(folder)
    taken = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    old, new = (t(PROBES[0], add_special_tokens=False)["input_ids"] for t in (own, taken))
    assert type(taken).__name__ == "Qwen2Tokenizer" and old != new
    policy = load_policy(folder, TrainingConfig())
    policy.tokenizer.save_pretrained(tmp_path / "trained")
    shutil.copyfile(folder / "config.json", tmp_path / "trained" / "config.json")
    for one in (folder, tmp_path / "trained"):
        assert load_tokenizer(one)(PROBES[0], add_special_tokens=False)["input_ids"] == old
    assert model_folder(Policy.AGENT, folder)


@mutation(
    "a tokenizer is compared with its file at every load", TOKENIZERS,
    "if contents not in _SAME:", "if True:",
)  # fmt: skip
@mutation(
    "a tokenizer with other files is not compared", TOKENIZERS,
    "[path.name, file_sha256(path)]", "[path.name]",
)  # fmt: skip
def test_a_tokenizer_is_compared_with_its_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    encode = tokenizers_module._ids

    def noted(tokenizer: Any, text: str) -> list[int]:
        compared.append(text)
        return encode(tokenizer, text)

    monkeypatch.setattr(tokenizers_module, "_ids", noted)
    monkeypatch.setattr(tokenizers_module, "_SAME", {})
    first = checkpoint(tmp_path / "first")
    shutil.copytree(first, tmp_path / "next")
    assert type(load_tokenizer(first)).__name__ == "Qwen2Tokenizer" and compared
    compared.clear()
    for one in (tmp_path / "next", first):
        assert type(load_tokenizer(one)).__name__ == "Qwen2Tokenizer" and not compared
    changed(first, "tokenizer_config.json", model_max_length=9)
    assert load_tokenizer(first).model_max_length == 9 and compared


TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look", "description": "Looks."}}
HI: Message = {"role": "user", "content": "hi"}
SEEN: Message = {"role": "tool", "content": "seen"}
OFFERS = (
    "{% for t in tools %}<|im_start|>{{ t.function.name }}{% endfor %}{% for m in messages %}"
    "<|im_start|>{{ 'user answer' if m.role == 'tool' else m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template for tools: it names them, and writes their answers as the user's."""


def of_lists(folder: Path, **templates: str) -> Path:
    """Return a checkpoint whose tokenizer_config.json has several templates by name."""
    listed = [{"name": name, "template": text} for name, text in templates.items()]
    changed(checkpoint(folder, None), "tokenizer_config.json", chat_template=listed)
    return folder


def of_files(folder: Path, **templates: str) -> Path:
    """Return a checkpoint with several templates in files, as transformers 5 saves them."""
    checkpoint(folder, templates.pop("default")).joinpath(MORE_TEMPLATES).mkdir()
    for name, text in templates.items():
        (folder / MORE_TEMPLATES / f"{name}.jinja").write_text(text)
    return folder


@mutation(
    "templates in a folder are left behind", GIVEN, "if (folder / MORE_TEMPLATES).is_dir():",
    "if False:",
    by="unit/exchange/test_given_tokenizers.py::test_several_templates_stay_what_they_are[files]",
)  # fmt: skip
@mutation(
    "templates in a folder are not in the digest", GIVEN, "return sorted([*more, *(p for",
    "return sorted([*(p for",
    by="unit/exchange/test_given_tokenizers.py::test_several_templates_stay_what_they_are[files]",
)  # fmt: skip
@mutation(
    "what tools answer is written by the template without tools", "genenv_core/play/chat.py",
    "offered=bool(tools) and not self.mending.tools)", "offered=False)",
    by="unit/exchange/test_given_tokenizers.py::test_several_templates_stay_what_they_are[lists]",
)  # fmt: skip
@mutation(
    "several templates lose the newlines that they begin with", TOKENIZERS,
    "{{%+ else %}}\\n{default}", "{{%+ else %}}{default}",
    by="unit/exchange/test_given_tokenizers.py::test_several_templates_stay_what_they_are[lists]",
)  # fmt: skip
@pytest.mark.parametrize("made", [of_lists, of_files], ids=["lists", "files"])
def test_several_templates_stay_what_they_are(tmp_path: Path, made: Any) -> None:
    """In what is given, in its copy, and in what an update saves: ids as transformers has them."""
    default = "\n\n" + CHATML
    given = made(tmp_path / "given", default=default, tool_use=OFFERS)
    take_over(given, tmp_path / "taken")
    policy = load_policy(tmp_path / "taken", TrainingConfig())
    policy.save(policy.model, tmp_path / "trained", tmp_path)
    theirs: Any = AutoTokenizer.from_pretrained(given)
    said: list[Message] = [HI, {"role": "assistant", "content": "abc"}]

    def own(messages: list[Message], **more: Any) -> tuple[int, ...]:
        made = theirs.apply_chat_template(messages, return_dict=False, **more)
        return tuple(made)

    for folder in (given, tmp_path / "taken", tmp_path / "trained"):
        chat = ChatFormat.load(folder)
        assert not chat.mending.tools and not chat.mending.answers
        completion = chat.completion("abc")
        for tools, template in (([TOOL], OFFERS), ([], default)):
            offered = {"tools": tools or None, "add_generation_prompt": True}
            assert chat.first_prompt([HI], tools) == own([HI], **offered)
            after = chat.continuation([SEEN], completion, tools)
            whole = own([*said, SEEN], **offered)
            assert whole[-len(after) :] == after
            assert ("user answer" in chat.decode(after)) is (template is OFFERS)
    before = model_folder(Policy.AGENT, given).sha256
    text = OFFERS.replace("answer", "answers")
    made(tmp_path / "other", default=default, tool_use=text)
    assert model_folder(Policy.AGENT, tmp_path / "other").sha256 != before


@mutation(
    "several templates without a default are taken", TOKENIZERS,
    'if "default" not in named:', "if not named:",
)  # fmt: skip
def test_templates_of_which_none_is_the_default_are_refused(tmp_path: Path) -> None:
    folder = of_lists(tmp_path / "none", rag=CHATML, tool_use=OFFERS)
    with pytest.raises(ModelError, match=r"chat templates rag, tool_use, and none is the default"):
        model_folder(Policy.AGENT, folder)


def sentencepiece(template: str) -> Any:
    """Return a tokenizer converted from SentencePiece: a blank begins each text, as in Llama 2."""
    letters = [chr(code) for code in range(33, 127)]
    names = ["<unk>", "<s>", "</s>", "\n", "\u2581", *letters, "47", "\u258147"]
    merges = [("4", "7"), ("\u2581", "47")]
    core = Tokenizer(BPE({one: at for at, one in enumerate(names)}, merges, unk_token="<unk>"))
    core.normalizer = Sequence([Prepend("\u2581"), Replace(" ", "\u2581")])
    core.add_special_tokens([AddedToken("</s>", special=True, normalized=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", unk_token="<unk>")
    tokenizer.chat_template = template
    return tokenizer


@mutation(
    "a turn of a warm start begins with a blank of SentencePiece", "genenv_core/play/chat.py",
    "        return (*own, self.stop_token_ids[0])\n",
    "        return (*self._rendering.ids(said), self.stop_token_ids[0])\n",
)  # fmt: skip
@mutation(
    "a turn whose tokens merge with the prompt's begins with a blank", "genenv_core/play/chat.py",
    "self._rendering.ids(BREAK + said)", "self._rendering.ids(said)",
)  # fmt: skip
@pytest.mark.parametrize("blank", ["\n", " ", "</s>"])
def test_the_ids_of_a_turn_follow_those_of_a_prompt(blank: str) -> None:
    """Behind a line, a blank that would merge, and a token that begins a text anew."""
    template = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>{% endfor %}"
    tokenizer = sentencepiece(template + f"<|assistant|>{blank}")
    turn = ChatFormat(tokenizer, name="tiny").completion("47")
    spelt = "\u258147" if blank == "</s>" else "47"
    assert tokenizer.convert_ids_to_tokens(list(turn)) == [spelt, "</s>"]
