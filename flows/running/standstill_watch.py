"""The process beside a run that reads where the run stands still; the run starts it by its path.

Its input has a line `beat` as long as the run's threads work, and else the dumps of `faulthandler`.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def standstills(
    lines: Iterable[str], files: Collection[str], still_s: float
) -> Iterator[tuple[str, float]]:
    """Yield the place in these files that holds up the run, and for how many seconds it has.

    It yields after `still_s`, twice as long, four times, and so on. The first frame of a stack is
    the innermost. It skips a standstill elsewhere, as of a stopped process.
    """
    escaped = {name.encode("ascii", "backslashreplace").decode(): name for name in files}
    dumps, looking = 0, False
    for line in lines:
        if line.startswith("beat"):
            dumps, looking = 0, False
        elif line.startswith("Timeout"):
            dumps += 1
            looking = dumps & (dumps - 1) == 0
        elif looking and (frame := _FRAME.match(line)) and frame[1] in escaped:
            looking = False
            yield f"{frame[3]} ({Path(escaped[frame[1]]).name}, line {frame[2]})", dumps * still_s


def main() -> None:
    """Print and log each standstill until the input ends."""
    pid, log, still_s, remedy, *files = sys.argv[1:]
    for place, seconds in standstills(sys.stdin, files, float(still_s)):
        said = (
            f"{place} of the run's domain has been at work for {seconds:g} s and lets nothing else "
            f"work, Ctrl-C included: {remedy}; end the run by `kill -9 {pid}` and resume it"
        )
        print(f"genenv: {said}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError), Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')},000 WARNING genenv.run {said}\n")


if __name__ == "__main__":
    main()
