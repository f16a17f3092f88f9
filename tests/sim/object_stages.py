"""Scenarios that are made for one breakage of replicated objects each: random ones would have to be lucky."""

HEADER = """
processors 1 2 3
seed {seed}
groups
log 1 2 3
objects {object}
"""

PAUSED_WITH_THE_TOKEN = (
    HEADER
    + """
at 800ms host 1.a open
at 800ms host 2.a open
at 1s work 2.a count=8 callers=2 pause=10000
at 1s work 1.a count=8 callers=2 pause=10000
at 2s pause 1
at 2300ms work 2.a count=30 callers=3 pause=10000
at 2790ms work 1.a count=12 callers=12 pause=0
at 2800ms resume 1
at 5s expect settled 2500ms
end 5s
"""
)
"""Processor 1 stops, and the token waits for it. The others go on without it, and write. Then it goes on with
the old token in hand, and its program reads."""

LATE_COPY = (
    HEADER
    + """
at 800ms host 1.a open
at 800ms host 2.a open
at 1s work 1.a count=6 callers=1 pause=10000
at 2s partition (1)
at 2010ms work 1.a count=12 callers=12 pause=0
at 2400ms host 1.a move
at 2800ms work 1.a count=20 callers=2 pause=5000
at 3500ms heal
at 4s work 1.a count=6 callers=2 pause=5000
at 7s expect settled 2500ms
end 7s
"""
)
"""A program's calls wait in a minority. It moves to the majority, where they are applied, and goes on: their
outcomes are acknowledged. Then the first copies are ordered, too."""

READ_AT_ONCE = (
    HEADER
    + """
at 800ms host 1.a open
at 800ms host 2.a open
at 1s work 2.a count=40 callers=4 pause=5000
at 2s host 1.a crash
at 2100ms work 2.a count=20 callers=4 pause=5000
at 2600ms host 1.a open
at 2600ms work 1.a count=12 callers=12 pause=0
at 5s expect settled 2500ms
end 5s
"""
)
"""A program opens the object and reads before it has caught up."""

CRASHES = (
    HEADER
    + """
at 800ms host 1.a open
at 800ms host 2.a open
at 1s work 1.a count=10 callers=2 pause=5000
at 1500ms host 1.a crash
at 1600ms host 1.a open
at 1700ms work 1.a count=10 callers=2 pause=5000
at 4s expect settled 2500ms
end 4s
"""
)
"""A program crashes, and begins again."""

FORGOTTEN_QUESTION = (
    HEADER
    + """
at 800ms host 1.a open
at 800ms host 2.a open
at 1s work 2.a count=8 callers=2 pause=10000
at 2s partition (1)
at 2001ms work 1.a count=1 callers=1 pause=0
at 2020ms host 1.a move
at 3s heal
at 6s expect settled 2500ms
end 6s
"""
)
"""A program asks for a barrier that cannot pass, and goes to another node before the component ends."""
