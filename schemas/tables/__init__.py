"""One pandera model a table; `schemas.registry` lists them."""
