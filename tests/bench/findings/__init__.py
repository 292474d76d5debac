"""`make findings`: the paper's six findings as checks on both embedded domains."""
