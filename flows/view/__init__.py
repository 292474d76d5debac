"""`genenv view`: a read-only local page over the runs of a root.

`reading` asks the pools through a confined process, `guarding` says who may ask, `pages` say what
is asked for each page, and `app` puts them together. Every number on a page comes from a `Panel`,
whose SQL stands beside it; nothing is computed in a page that a person could not ask for.
"""
