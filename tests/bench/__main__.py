"""`make bench`: every benchmark in turn, each printing what it compared in one run."""

from __future__ import annotations

from tests.bench import engine, orchestration, storage

if __name__ == "__main__":
    engine.main()
    orchestration.main()
    storage.main()
