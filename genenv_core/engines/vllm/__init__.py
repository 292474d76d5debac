"""The engine `vllm`: a client of vLLM's OpenAI-compatible server, and the servers it starts.

`wire` says what is asked and what an answer must be; `guard` and `server` start a server and end
it with us; `replica` is one server as the engine sees it; `engine` spreads requests over replicas.
Nothing here imports vllm, which lives in an environment of its own.
"""
