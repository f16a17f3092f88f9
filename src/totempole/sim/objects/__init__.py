"""Simulated programs with a replicated object: the real host and machine, on simulated nodes.

`subject` is what they run: a class, and what is called of it. `connection` is between a program and its node,
`program` is one program, `programs` are all of a world, `history` is what they called and were told,
`judging` says whether it was right.
"""
