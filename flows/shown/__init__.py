"""Makes what a person reads, in whichever form: on a terminal, in a file, on a page.

`tables` lays out tables for the terminal, `rows` writes the rows of a question as any kind of file,
`json_text` writes JSON, with `spelling` and `odd_numbers` for values that JSON has no form for.
`prefect_artifacts` sends a run's progress to Prefect's UI. The command line, the view and the
deployed flows import these modules, which import none of theirs.
"""
