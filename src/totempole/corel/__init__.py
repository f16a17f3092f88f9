"""COReL: one durable total order that outlives crashes and partitions, above process groups.

Read `layer` for what happens when, `zones` for what a replica keeps, `recovery` for what replicas agree on
after a change of view, `catch_up` for those who are far behind. `frames` is what a replica writes to its
log, `messages` what it says to the others. A replica's state is the fold of its frames: the protocol
changes it only by making a frame, and a restart replays them.
"""
