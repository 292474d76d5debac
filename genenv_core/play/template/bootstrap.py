"""The chat template of the tiny models that `bootstrap` makes.

It shows no tools: these models learn from seed data which tools there are.
"""

# It closes only an assistant's message, with the end token of the completion: so the rendering of a
# transcript starts with the rendering of each of its beginnings.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + (message['content'] or '') -}}"
    "{%- if message['role'] == 'assistant' -%}{{- '<|end|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
