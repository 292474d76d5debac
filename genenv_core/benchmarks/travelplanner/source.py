"""The sources of TravelPlanner's data: queries on the hub, the database in an old commit.

The flights, 300 MB, are in no repository. They come in a zip behind a page that asks for a click.
The authors publish no digest of it; somebody else who downloaded it recorded this one. The table of
roads in the zip has other line ends than that of the commit, and the same rows.
"""

from __future__ import annotations

from genenv_core.benchmarks.downloads.sources import BenchmarkSource, ByHand, HubFile, RepoFile
from genenv_core.benchmarks.travelplanner.database import (
    ATTRACTIONS,
    DISTANCES,
    FLIGHTS,
    FOLDER,
    RESTAURANTS,
    ROOMS,
    STATES,
)

_FILES = {
    ROOMS: "1a3144dc7ec77e247f4eefd089f5104fc65caebe",
    ATTRACTIONS: "3a194729fc2f24253b9ce4806265706609cc5c17",
    RESTAURANTS: "0fae68836f282b47bb57334d8efbc9ec9885dbcb",
    DISTANCES: "ef9b46c6bd1b5596cbba8b7485a91366309759d7",
    STATES: "92f6c0a084ee5d7794199f978cd2bd22288694ea",
}

SOURCE = BenchmarkSource(
    parts=(
        *(
            HubFile(
                to=f"{split}.csv",
                repo="osunlp/TravelPlanner",
                revision="8736504ecfc31b7f8b7e40122873c337e83fff7c",
                name=f"{split}.csv",
                most=50_000_000,
            )
            for split in ("train", "validation")
        ),
        *(
            RepoFile(
                to=f"{FOLDER}/{path}",
                repo="OSU-NLP-Group/TravelPlanner",
                commit="958f30d7e7629d18f33d79183dedf9b2830ff88c",
                path=f"{FOLDER}/{path}",
                git_id=git_id,
                most=5_000_000,
            )
            for path, git_id in _FILES.items()
        ),
        ByHand(
            to=f"{FOLDER}/{FLIGHTS[0]}",
            address="https://drive.google.com/file/d/1pF1Sw6pBmq2sFkJvm-LzJOqrmfWoQgxE/view",
            file="sandbox_database.zip",
            sha256="de345b0c243cd8c85355a264c5124db5db275327d2a38fa8685c6e69fabb650b",
            below=FOLDER,
            unpacked=1_000_000_000,
        ),
    ),
    items={"train": 45, "validation": 180},
)
