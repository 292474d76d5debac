"""The engine `vllm`: a client of vLLM's OpenAI-compatible server, and the servers it starts.

`wire` says what is asked and what an answer must be; `guard` and `server` start a server and end
it with us, and `cpu` knows what vLLM's build for CPUs wants; `replica` is one server as the engine
sees it, `upkeep` keeps replicas alive, `fleet` spreads requests over them, and `engine` is all of
it to the outside. Nothing here imports vllm, which lives in an environment of its own.
"""
