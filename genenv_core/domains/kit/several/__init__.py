"""Several domains in one run: one domain made of them, in which each has its share."""
