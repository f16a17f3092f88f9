"""Histories whose verdicts are known: (name, model, drawing)."""

GOOD = (
    ("nothing", "register", ""),
    ("one after the other", "register", "A: [write 1] [read=1] [write 2] [read=2]"),
    (
        "a read beside a write sees the old value",
        "register",
        """
        A: [write 1     ]
        B:    [read=0]
        """,
    ),
    (
        "a read beside a write sees the new value",
        "register",
        """
        A: [write 1     ]
        B:    [read=1]
        """,
    ),
    (
        "first old, then new, within one write",
        "register",
        """
        A: [write 1                ]
        B:    [read=0] [read=1]
        """,
    ),
    (
        "of two writes the first to begin may be last",
        "register",
        """
        A: [write 1        ]
        B:    [write 2 ]
        C:                    [read=1]
        """,
    ),
    (
        "of two writes the last to begin may be last",
        "register",
        """
        A: [write 1        ]
        B:    [write 2 ]
        C:                    [read=2]
        """,
    ),
    (
        "two readers beside each other see different values",
        "register",
        """
        A: [write 1                ]
        B:    [read=1    ]
        C:      [read=0     ]
        """,
    ),
    (
        "a write that never ended and is never seen",
        "register",
        """
        A: [write 1 >
        B:            [read=0] [read=0]
        """,
    ),
    (
        "a write that never ended and is seen at once",
        "register",
        """
        A: [write 1 >
        B:            [read=1] [read=1]
        """,
    ),
    (
        "a write that never ended takes effect late",
        "register",
        """
        A: [write 1 >
        B:            [read=0] [write 2] [read=2] [read=1]
        """,
    ),
    (
        "two writes that never ended take effect in either order",
        "register",
        """
        A: [write 1 >
        B:  [write 2 >
        C:              [read=2] [read=1]
        """,
    ),
    (
        "of two that never ended one never happens",
        "register",
        """
        A: [write 1 >
        B:  [write 2 >
        C:              [read=2] [read=2] [read=2]
        """,
    ),
    (
        "one of two swaps wins",
        "register",
        """
        A: [cas 0 1=yes]
        B:  [cas 0 2=no]
        C:               [read=1]
        """,
    ),
    (
        "a swap that never ended has won",
        "register",
        """
        A: [cas 0 1 >
        B:            [cas 0 2=no] [read=1]
        """,
    ),
    (
        "a swap that never ended has lost",
        "register",
        """
        A: [cas 0 1 >
        B:            [cas 0 2=yes] [read=2]
        """,
    ),
    (
        "each addition once",
        "register",
        """
        A: [add 1=1  ] [add 1=4]
        B:  [add 1=3  ]
        C:   [add 1=2   ]
        """,
    ),
    (
        "an addition that never ended happens in between",
        "register",
        """
        A: [add 1 >
        B:          [add 1=1] [add 1=3]
        """,
    ),
    (
        "an addition that never ended does not happen",
        "register",
        """
        A: [add 1 >
        B:          [add 1=1] [add 1=2]
        """,
    ),
    (
        "an end and a begin at one instant are concurrent",
        "register",
        """
        A: [write 1][write 2]
        B:  [read=0]
        """,
    ),
    (
        "keys are apart",
        "store",
        """
        A: [put x 1] [get y=none ] [get y=2]
        B:    [put y 2               ]  [get x=1]
        """,
    ),
    (
        "the same, judged as one object",
        "whole store",
        """
        A: [put x 1] [get y=none ] [get y=2]
        B:    [put y 2               ]  [get x=1]
        """,
    ),
    (
        "deleted once",
        "store",
        """
        A: [put x 1] [delete x=yes   ] [get x=none]
        B:             [delete x=no ]
        """,
    ),
    (
        "a deletion that never ended happens late",
        "store",
        """
        A: [put x 1] [delete x >
        B:                        [get x=1] [delete x=no] [put x 3] [get x=3]
        """,
    ),
    (
        "a put that never ended comes after a deletion",
        "store",
        """
        A: [put x 1 >
        B:            [get x=1] [delete x=yes] [get x=none]
        """,
    ),
    (
        "counts of two keys",
        "store",
        """
        A: [add x 1=1] [add y 1=2 ]
        B:  [add x 1=2     ] [add y 1=1  ]
        """,
    ),
    (
        "a lock that goes from one to the other",
        "lock",
        """
        A: [acquire a=yes]   [release a]
        B:     [acquire b=no]            [acquire b=yes]
        """,
    ),
    (
        "acquired while it is being released",
        "lock",
        """
        A: [acquire a=yes] [release a     ]
        B:                   [acquire b=yes] [owner=b]
        """,
    ),
    (
        "a lock acquired by a call that never ended",
        "lock",
        """
        A: [acquire a >
        B:              [acquire b=no] [owner=a]
        """,
    ),
    (
        "released by a call that never ended",
        "lock",
        """
        A: [acquire a=yes] [release a >
        B:                              [acquire b=no] [acquire b=yes]
        """,
    ),
    (
        "a release by somebody else is refused",
        "lock",
        """
        A: [acquire a=yes]
        B:                 [release b=refused] [owner=a]
        """,
    ),
    (
        "the same, before it is acquired",
        "lock",
        """
        A: [acquire a=yes               ]
        B:   [release b=refused] [owner=none]
        """,
    ),
    (
        "a queue in order",
        "queue",
        """
        A: [put 1] [put 2]
        B:                 [take=1] [take=2] [take=none]
        """,
    ),
    (
        "two puts beside each other, in either order",
        "queue",
        """
        A: [put 1  ]
        B:  [put 2   ]
        C:             [take=2] [take=1]
        """,
    ),
    (
        "empty while a put is on its way",
        "queue",
        """
        A: [put 1                   ]
        B:    [take=none] [take=1]
        """,
    ),
    (
        "two takers",
        "queue",
        """
        A: [put 1] [put 2]
        B:                 [take=2  ]
        C:                   [take=1  ]
        """,
    ),
    (
        "an item taken by a call that never ended",
        "queue",
        """
        A: [put 1] [put 2]
        B:                 [take >
        C:                          [take=2] [take=none]
        """,
    ),
    (
        "an item put by a call that never ended, late",
        "queue",
        """
        A: [put 1 >
        B:           [take=none] [put 2] [take=2] [take=1]
        """,
    ),
)

BAD = (
    ("a wrong value", "register", "A: [write 1] [read=2]"),
    ("a lost write", "register", "A: [write 1] [read=0]"),
    (
        "a stale read",
        "register",
        """
        A: [write 1]
        B:           [read=0]
        """,
    ),
    (
        "a stale read after another's read",
        "register",
        """
        A: [write 1                   ]
        B:   [read=1]
        C:             [read=0]
        """,
    ),
    (
        "one reader goes back",
        "register",
        """
        A: [write 1                   ]
        B:   [read=1]  [read=0]
        """,
    ),
    (
        "values come back",
        "register",
        """
        A: [write 1] [write 2]
        B:                     [read=2] [read=1]
        """,
    ),
    (
        "two readers see two writes in different orders",
        "register",
        """
        A: [write 1  ]
        B:  [write 2 ]
        C:             [read=1 ]  [read=2]
        D:              [read=2]  [read=1]
        """,
    ),
    (
        "a value that nobody has written yet",
        "register",
        """
        A:          [write 1]
        B: [read=1]
        """,
    ),
    (
        "a value from the future, of a call that never ended",
        "register",
        """
        A:          [write 1 >
        B: [read=1]
        """,
    ),
    (
        "a write that never ended is seen and then not",
        "register",
        """
        A: [write 1 >
        B:            [read=1] [read=0]
        """,
    ),
    (
        "a write that never ended happens twice",
        "register",
        """
        A: [write 1 >
        B:            [read=1] [write 2] [read=2] [read=1]
        """,
    ),
    (
        "two swaps win",
        "register",
        """
        A: [cas 0 1=yes]
        B:  [cas 0 2=yes]
        """,
    ),
    (
        "no swap wins",
        "register",
        """
        A: [cas 0 1=no]
        B:  [cas 0 2=no]
        """,
    ),
    (
        "a swap that lost took effect",
        "register",
        """
        A: [write 5] [cas 0 1=no]
        B:                        [read=1]
        """,
    ),
    (
        "a lost update",
        "register",
        """
        A: [add 1=1 ]
        B:  [add 1=1 ]
        """,
    ),
    (
        "an addition applied twice",
        "register",
        """
        A: [add 1=1]
        B:           [add 1=3]
        """,
    ),
    (
        "an addition that never ended is applied twice",
        "register",
        """
        A: [add 1 >
        B:          [add 1=2] [add 1=4]
        """,
    ),
    (
        "an addition is undone",
        "register",
        """
        A: [add 1=1]
        B:           [add 1=2] [read=1]
        """,
    ),
    (
        "a read in between two additions sees neither",
        "register",
        """
        A: [add 1=1] [add 1=2]
        B:            [read=0]
        """,
    ),
    ("a stale get", "store", "A: [put x 1] [put x 2] [get x=1]"),
    (
        "a stale get of one key among others",
        "store",
        """
        A: [put x 1] [put y 1]  [put x 2]
        B:   [get y=none]                 [get y=1] [get x=1]
        """,
    ),
    (
        "the same, judged as one object",
        "whole store",
        """
        A: [put x 1] [put y 1]  [put x 2]
        B:   [get y=none]                 [get y=1] [get x=1]
        """,
    ),
    (
        "deleted twice",
        "store",
        """
        A: [put x 1] [delete x=yes ]
        B:             [delete x=yes ]
        """,
    ),
    ("deleted and still there", "store", "A: [put x 1] [delete x=yes] [get x=1]"),
    (
        "a put that comes back after a deletion",
        "store",
        """
        A: [put x 1 >
        B:            [get x=1] [delete x=yes] [get x=1]
        """,
    ),
    (
        "a lost update of one key",
        "store",
        """
        A: [add x 1=1]  [add y 1=1]
        B:   [add x 1=1]
        """,
    ),
    (
        "two holders",
        "lock",
        """
        A: [acquire a=yes]
        B:   [acquire b=yes]
        """,
    ),
    (
        "two holders, one of a call that never ended",
        "lock",
        """
        A: [acquire a >
        B:              [owner=a] [acquire b=yes]
        """,
    ),
    (
        "held by nobody, and not to be had",
        "lock",
        """
        A: [acquire a=yes] [release a]
        B:                              [acquire b=no]
        """,
    ),
    (
        "released and still held",
        "lock",
        """
        A: [acquire a=yes] [release a]
        B:                              [owner=a]
        """,
    ),
    (
        "released by somebody else",
        "lock",
        """
        A: [acquire a=yes]
        B:                  [release b]
        """,
    ),
    (
        "refused to the holder",
        "lock",
        """
        A: [acquire a=yes] [release a=refused]
        """,
    ),
    (
        "an old holder's release that never ended frees it twice",
        "lock",
        """
        A: [acquire a=yes] [release a >
        B:                              [acquire b=yes] [owner=none]
        """,
    ),
    ("a queue out of order", "queue", "A: [put 1] [put 2] [take=2] [take=1]"),
    (
        "an item taken twice",
        "queue",
        """
        A: [put 1]
        B:         [take=1  ]
        C:           [take=1  ]
        """,
    ),
    (
        "an item lost",
        "queue",
        """
        A: [put 1] [put 2]
        B:                 [take=2]
        """,
    ),
    (
        "an item that nobody put",
        "queue",
        """
        A: [put 1]
        B:    [take=2]
        """,
    ),
    (
        "empty with an item in it",
        "queue",
        """
        A: [put 1] [put 2]
        B:                 [take=1] [take=none] [take=2]
        """,
    ),
    (
        "a put that never ended is taken twice",
        "queue",
        """
        A: [put 1 >
        B:           [take=1] [take=none] [take=1]
        """,
    ),
    (
        "a take that never ended takes two",
        "queue",
        """
        A: [put 1] [put 2] [put 3]
        B:                         [take >
        C:                                 [take=3]
        """,
    ),
    ("a size that is not right", "queue", "A: [put 1] [put 2] [take=1] [size=2]"),
)
