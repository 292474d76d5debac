"""How tasks come about: contexts, texts of pi_env or a teacher, admission."""
