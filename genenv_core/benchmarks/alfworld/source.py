"""The sources of ALFWorld's games: the archives that `alfworld-download` of 0.4.2 gets.

The project publishes no digests. Others who downloaded the archives recorded these: five public
records agree on the trajectories, one names the games. The release 0.4.2 has games of its own,
`json_2.1.3_tw-pddl.zip`, which the package of that version does not get yet.
"""

from __future__ import annotations

from genenv_core.benchmarks.alfworld.loading import GAME, INSIDE, SPLITS, TRAJECTORY
from genenv_core.benchmarks.downloads.sources import Archive, BenchmarkSource, Wheel

_RELEASES = "https://github.com/alfworld/alfworld/releases/download"

SOURCE = BenchmarkSource(
    parts=(
        Archive(
            to=INSIDE,
            address=f"{_RELEASES}/0.2.2/json_2.1.1_json.zip",
            sha256="25171f16e20ad7b048c47275c45b0babf3aa1cbab29cec97387922350a9844bc",
            below=tuple(SPLITS),
            keep=TRAJECTORY,
            most=72_018_818,
            unpacked=4_000_000_000,
        ),
        Archive(
            to=INSIDE,
            address=f"{_RELEASES}/0.4.0/json_2.1.2_tw-pddl.zip",
            sha256="eea90499df27b9cb3147d1d1927264146d38194b575e25f70a82875545742dcb",
            below=tuple(SPLITS),
            keep=GAME,
            most=36_493_542,
            unpacked=4_000_000_000,
        ),
        Wheel(
            project="alfworld",
            version="0.4.2",
            file="alfworld-0.4.2-py3-none-any.whl",
            sha256="29affbea28f6041d1e8516ed3efd6b55becd52cfca4fb9dd5c75b9d6b8a56c2f",
            members={
                "logic/alfred.pddl": (
                    "alfworld/data/alfred.pddl",
                    "9c0d8126c016f8239429c9f713096ae12ab6dd33",
                ),
                "logic/alfred.twl2": (
                    "alfworld/data/alfred.twl2",
                    "47a7c9f59948e2bd718fc3fa618340f5e0ae1092",
                ),
            },
            most=1_000_000,
        ),
    ),
    items={"seen": 140, "unseen": 134, "train": 3553},
)
