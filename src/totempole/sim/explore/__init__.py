"""Small systems searched whole: two or three real processors, every order of what can happen to them.

`snapshot` copies protocol objects and tells them apart, `processor` has the moves of one of them, `space` has
what can happen to several, `explorer` walks through all of it and judges. `rehearsal` plays roots and ends,
`cases` says what is searched, `mutants` which broken protocols that must notice.
"""
