"""The engine `vllm`: a client of vLLM's OpenAI-compatible server, and the servers it starts.

`wire` writes requests and checks answers. `guard` and `server` start a server that ends with us,
and `cpu` adds what vLLM's build for CPUs wants. `replica` is one server as the engine sees it,
`upkeep` keeps replicas alive, `fleet` spreads requests over them, and `engine` shows all of it to
callers. Nothing here imports vllm, which lives in an environment of its own.
"""
