"""The tools of an environment of ORS: calls in the server's form, and answers as texts."""

from __future__ import annotations

from genenv_core.domains.kit.served.client import ServerAnswer, as_list, as_object
from genenv_core.domains.kit.served.forms import ListedForm
from genenv_core.domains.kit.tools import told
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError
from genenv_core.types import JsonObject


class OrsForm(ListedForm):
    """Takes calls of the environment's tools, and of the task's own ones."""

    def action(self, name: str, arguments: JsonObject) -> JsonObject:
        """Return a call in the form of `/call`."""
        return {"name": name, "input": arguments}

    def answered(self, answer: object) -> str:
        """Return the turn that gives an answer: its call, or one of the tool that takes one value.

        Raises ConfigError for an answer that is no call, unless exactly one tool takes one value.
        """
        call = as_object(answer)
        if isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict):
            return written({"name": call["name"], "arguments": call["arguments"]})
        taking = [
            (tool["function"]["name"], fields)
            for tool in self.tools
            if len(fields := as_object(tool["function"]["parameters"].get("properties"))) == 1
        ]
        if len(taking) != 1:
            raise ConfigError(
                f"domain.options.answer: {answer!r:.80} is no call with name and arguments, and "
                f"{len(taking)} tools take one argument: let the field of the task be a call"
            )
        ((name, fields),) = taking
        ((argument, schema),) = fields.items()
        value = told(answer) if as_object(schema).get("type") == "string" else answer
        return written({"name": name, "arguments": {argument: value}})


def tell(answer: ServerAnswer) -> str:
    """Return the texts of an answer's blocks; a bracketed type stands for an image."""
    return "\n".join(_block(as_object(one)) for one in as_list(answer.observation.get("blocks")))


def _block(block: JsonObject) -> str:
    if "text" in block:
        return str(block["text"])
    return f"[{block.get('type', 'block')} {block.get('mimeType', '')}]".replace(" ]", "]")
