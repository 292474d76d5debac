"""A run in one file that proves itself: what made it, and the digest of every output.

`sealed_zip` packs the file, `contents` knows its members, `statement` describes them in the words
of in-toto and SLSA, `sources` and `cards` make members, and `comparing` says how a replay differs.
"""
