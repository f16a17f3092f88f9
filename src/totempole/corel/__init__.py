"""COReL: one durable total order that outlives crashes and partitions, above process groups.

Read `layer` for what happens when, `view_handler` and `recovery` for what a change of view sets off and what
replicas agree on after it, `ordering` for how runs become green, `catch_up` for those who are far behind,
`zones` for what a replica keeps. `frames` is what a replica writes to its log, `messages` what it says to the
others. A replica's state is the fold of its frames: the protocol changes it only by making a frame, and a
restart replays them.
"""
