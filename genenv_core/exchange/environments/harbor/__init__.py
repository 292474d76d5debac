"""Tasks of a run as folders of Harbor: one each, played by an agent in a container.

`folders` writes them and `withholding` says what of a task its container does without. `serving`
and `saying` travel in them: the environment's part, and the command that the agent has.
"""
