"""`genenv view`: a read-only local page over the runs of a root.

`reading` asks the pools through a confined process, `guarding` decides who may ask, `pages` hold
the questions of each page, and `app` puts them together. Every number on a page comes from a
`Panel`, and its SQL stands beside it, so a person can ask for all that a page shows.
"""
