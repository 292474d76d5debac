"""Stands for a process that the zygote forks: `python -S -E stand_in.py SOCKET WORDS`.

It gives the zygote its environment, folder and open files, passes signals on, and ends as the
forked process ends. The zygote kills that one when this one is gone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Have what follows `python` run, and end as it does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is whom to pass them on to
    with socket.socket(socket.AF_UNIX) as zygote:
        zygote.connect(sys.argv[1])
        request = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
        text = json.dumps(request).encode()
        socket.send_fds(zygote, [len(text).to_bytes(4, "big")], [0, 1, 2])
        zygote.sendall(text)
        lines = zygote.makefile("r")
        pid = int(lines.readline())

        def pass_on(number: int, frame: object) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in PASSED_ON:
            signal.signal(number, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        code = os.waitstatus_to_exitcode(int(lines.readline() or signal.SIGKILL))
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
