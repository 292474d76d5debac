"""Makes tasks: contexts, texts of pi_env or a teacher, admission."""
