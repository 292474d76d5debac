"""A run in one file that proves itself: what made it, and the digest of all that came out.

`sealed_zip` is the file, `contents` what is in it, `statement` says it in the words of in-toto and
SLSA, `sources` and `cards` make members, and `comparing` tells how a replay differs.
"""
