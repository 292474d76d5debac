"""Crash storm: kill -9 at random points of a run, then continue it, again and again."""
