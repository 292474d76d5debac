"""The constraints of a plan, each a function of a query, a plan and the database."""
