#!/usr/bin/env python3
"""The command `attempt` of an agent in a container: it says turns to the environment.

It stands alone there and needs Python only. The environment listens on a socket beside the task.
"""

import json
import socket
import sys

SOCKET = "/opt/attempt/socket"

USAGE = """usage: attempt say [FILE]   say the text of FILE, or of the standard input, as one turn
       attempt show         print the conversation so far

One newline at the end of the text is no part of the turn."""


def main() -> int:
    """Say a turn or show the conversation; return 0, or 1 or 2 where nothing came of it."""
    given = sys.argv[1:]
    if given[:1] == ["say"] and len(given) <= 2:
        text = _text(given[1:]).removesuffix("\n")
        if not text:
            print("Nothing was said: the text is empty.", file=sys.stderr)
            return 2
        return _asked({"say": text})
    if given == ["show"]:
        return _asked({"show": True})
    print(USAGE, file=sys.stderr)
    return 2


def _text(files: list[str]) -> str:
    if not files or files == ["-"]:
        return sys.stdin.buffer.read().decode(errors="replace")
    with open(files[0], "rb") as file:
        return file.read().decode(errors="replace")


def _asked(request: object) -> int:
    with socket.socket(socket.AF_UNIX) as to:
        try:
            to.connect(SOCKET)
        except OSError as error:
            print(f"The environment does not answer: {error}.", file=sys.stderr)
            return 1
        to.sendall(json.dumps(request).encode() + b"\n")
        with to.makefile("rb") as answers:
            answer = json.loads(answers.readline() or b'{"failed": "The environment is gone."}')
    if failed := answer.get("failed"):
        print(failed, file=sys.stderr)
        return 1
    print(answer["text"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
