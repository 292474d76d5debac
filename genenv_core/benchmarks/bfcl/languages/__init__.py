"""Source texts of other languages read as Python values, as the official converters do."""
