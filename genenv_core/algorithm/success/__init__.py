"""A task's success rate: what is believed of it, and the model that predicts it."""
