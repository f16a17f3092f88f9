"""What the demo says between its pictures. Line breaks mean nothing here."""

WELCOME = (
    """
    [bold]totempole[/] gives every processor the same messages in the same order, through loss, crashes,
    partitions and remerges, with no broker in the middle: the Totem protocol of D. A. Agarwal's dissertation
    (1994), in Python.
    """,
    """
    What follows is the real protocol in a simulated world: every packet is encoded, sent, lost, delayed and
    decoded. Nothing is canned; the same seeds give the same runs, to the microsecond, on every machine.
    """,
)

REAL = """
    Each node is a process of its own with its own disk, UDP sockets on its own network, and a key: the
    object that was simulated above, driven by the kernel. All send; r is killed under load, and started again
    with its disk; then p and q are parted from r and s, and all come together again.
    """

SPARK = """
    The same properties, judged on Spark's executors as they are for any number of runs on any number of
    machines; and how long messages took.
    """

RING = """
    A token goes round the ring. Who has it numbers and broadcasts its messages, and asks for those that
    it misses. So everyone delivers in the order of the numbers. These are the first deliveries of each
    processor, every message shown by the name of its sender:
    """

CRASH = """
    Time runs downwards, one column for each processor. When r dies, the token is lost with it. The others
    agree on who is left and recover what was under way in a [yellow]transitional[/] configuration, so
    that nobody is left guessing what the others have delivered.
    """

PARTITION = """
    No side is told to stop. Each has its own order from here on, and everyone is told whose it is.
    """

FIGURE_15 = """
    p is cut off while q, r, s and t merge with u and v. Safe messages were under way, and nobody can know
    whether they reached p. They cannot be delivered as safe in {p q r s t} any more, but they can in the
    transitional configuration of those who are left. p's own last two messages reached nobody: it
    delivers them in a configuration of its own.
    """

FIGURE_16 = r"""
    As before, but q and r are cut off late in the recovery. They have promised to deliver the last
    messages of s and t, and s and t have delivered them because of that promise. Then q and r never
    install {q r s t u v}: hence the parentheses. They go on through \[q] and \[r], and keep their promise
    there: as many messages as in \[(q) (r) s t].
    """

VERDICTS = (
    "[dim]✓ holds   ✗ violated   ? a run that is not waited out cannot tell   - nothing to judge: the run "
    "has no groups, or no log[/]"
)

BROKEN_PROMISE = "Figure 4.16 once more. q and r deliver nothing of what they promised to s and t:"

NEXT = {
    "Now a program of your own": (
        ("{totem} dev", "three nodes on this machine: kill 2, part 1 | 2 3, heal, load"),
        ('README.md, "Your first program"', "a store to paste; `dev` prints how it finds a node"),
        ("docs/testing.md", "a test with a partition, in virtual time: totempole.testing"),
    ),
    "More of what you have seen": (
        ("{totem} sim --list", "the scenarios, as files to change"),
        ("{totem} fuzz --seeds 0:1000", "a real search, on all cores"),
        ("{totem} verify TRACES", "Spark judges what nodes recorded; `report` draws it"),
    ),
}
"""What to type next, and why."""

FAULTS = {
    "fate: lost": "datagrams lost",
    "fault: partition": "partitions",
    "fault: crash": "crashes",
    "fault: pause": "pauses",
    "fault: cut": "one-way cuts",
    "fault: drop-next": "picked-off packets",
    "fault: ambush": "ambushes",
    "fault: leave": "leaves",
}
"""What a search counts, in words."""
