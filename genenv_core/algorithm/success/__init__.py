"""A task's success rate: the belief about it, and the model that predicts it."""
