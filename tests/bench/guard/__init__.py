"""What `generation.guard` is worth: an ablation on a domain that pi_env can game."""
