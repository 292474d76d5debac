"""What `.ci/run` plays beyond `make test`: the slow suites that a change asks for.

`table` says which suites there are and which paths ask for them, `changes` says what changed since
the commit that the file `PROVEN` names, `noting` is the pytest plugin that writes down outcomes,
`playing` plays suites, and `python -m tests.proof` is the command.
"""
