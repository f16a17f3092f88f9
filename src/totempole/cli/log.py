"""`totem log`: read the durable order, check it, and look after its replicas. Each verb is in a module beside
this one."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from totempole.cli import options


class LogVerb(NamedTuple):
    name: str
    summary: str
    module: str
    """Its `add_…` gives the verb's parser its arguments, and `run`."""

    def fill(self, parser: options.Parser) -> None:
        getattr(import_module(f"totempole.cli.{self.module}"), f"add_{self.name}")(parser)


VERBS = (
    LogVerb("show", "print records, by position", "log_show"),
    LogVerb("follow", "print records as they are ordered", "log_show"),
    LogVerb("export", "write records to a file, as Parquet or NDJSON", "log_export"),
    LogVerb("status", "show what a replica has, and who is missing", "log_status"),
    LogVerb("state", "show a replicated object as it was at a position", "log_state"),
    LogVerb("diff", "find the first position where two replicas part", "log_diff"),
    LogVerb("check", "verify a log's directory, or a backup of one", "log_check"),
    LogVerb("hold", "keep what a reader still needs from being trimmed", "log_holds"),
    LogVerb("holds", "show the readers' holds", "log_holds"),
    LogVerb("add", "add a replica", "log_changes"),
    LogVerb("remove", "remove a replica", "log_changes"),
    LogVerb("replace", "put one replica in the place of another", "log_changes"),
    LogVerb("trim", "remove old records from this node's disk", "log_changes"),
    LogVerb("rescue", "go on from one replica when the others are lost for good", "log_rescue"),
)

EXAMPLES = """\
examples:
  totem log status                      what this node's replica has, and who is missing
  totem log show                        the last records
  totem log show --start 1000 --stop 1020 --json
  totem log follow --log orders         records of one log, as they are ordered
  totem log export orders.parquet --log orders
  totem log state bank --class bank:Bank --at 120000
  totem log check /backup/log           a copy of a log's directory
  totem log add 4                       let node 4 vote, once it has caught up

Each verb explains itself: `totem log show --help`. docs/log-reading.md tells more.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        options.verb(verbs, verb.name, verb.summary).fill = verb.fill
