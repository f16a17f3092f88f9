"""A program's side of its daemon.

`session` is for asyncio, `blocking` for programs without it. Both are bridges over `protocol`, which does no
I/O: `events` are what a program receives and the streams that hold it until the program takes it, `sending`
is what it sends. Program and daemon talk in the frames of `totempole.session`.

The asyncio session has three parts: `connection` reads, writes, comes back when the daemon has gone away, and
wakes the tasks that wait; `multicasting` sends; `receiving` joins groups and takes their events. A `donor`
gives a group's state to members that join.
"""
