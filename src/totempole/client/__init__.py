"""A program's side of its daemon.

`events` are what a program receives. `session` and `group` are for asyncio, `blocking` for programs without
it; both are bridges over `protocol`, which does no I/O: `streams` holds what the program has not taken yet,
`sending` what it multicasts, `frames` is the language between program and daemon.
"""
