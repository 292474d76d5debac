"""Which tasks an epoch attempts: the choice, windows of a set, and refills of flat groups."""
