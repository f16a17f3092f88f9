"""The simulator: real protocol objects on virtual clocks, disks and networks that fail on command.

Start at `scenario` (text files that tell a story) or `world` (the same from Python); below them are `host`
(one processor), `medium` (the networks), `disk` and `clock`. One seed gives one run, to the microsecond.
"""
