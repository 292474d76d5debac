"""Several domains in one run: one domain that is made of them, with a share of everything each."""
