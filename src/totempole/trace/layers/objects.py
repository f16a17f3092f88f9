"""What programs with replicated objects write: their calls and what they were told. Together these rows are a
history, which can be judged by the object's class (`checkers/linearizability.py`).

They need no columns of their own. A call is named in `message`; `group` is the object, and `origin` the node
of the program. Of a `call`: `process` is the caller, `reason` the method, and `old_state` the arguments,
encoded, in hexadecimal digits. Of a `result`: `reason` is what became of it, and `new_state` the answer,
encoded, or a text. `process` and `count` are the client and the number by which the log knows the call, `seq`
is its token in the order (of a read: the token behind which it read), and `timestamp` the time that the order
gave it, -1 if the program does not know it.
"""

from __future__ import annotations

from totempole.trace.kinds import Kind, Level

DONE, REFUSED, RAISED = "done", "refused", "raised"
"""Reasons of a `result` row: what the object has answered."""
WITHOUT_EFFECT = "without effect"
"""The call was never applied, and never will be."""

KINDS = (
    Kind("call", Level.DELIVERY, "a program calls a method of a replicated object; reason: the method"),
    Kind(
        "result",
        Level.DELIVERY,
        "it is told what became of the call; reason: done, refused, raised or without effect",
    ),
)
