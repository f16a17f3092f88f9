"""Broken objects, which the scenarios and the random histories must tell from true ones.

Each differs from `totempole.objects` in one place; the package is loaded afresh around it.
"""

from __future__ import annotations

from totempole.sim.fuzz.mutation import Mutant


def mutant(name: str, where: str, old: str, new: str, seed: int = 0) -> Mutant:
    """`seed`: of a random history that gives it away. Those without one have a scenario."""
    return Mutant(name, where, old, new, seed, "objects")


MUTANTS = (
    # Exactly once
    mutant(
        "a duplicate is applied again",
        "ObjectMachine._take_calls",
        "if outcome is not None:",
        "if False:",
        seed=1,
    ),
    mutant(
        "outcomes are not kept",
        "ObjectMachine._take_calls",
        "kept[number] = outcome = Outcome(name, number, position, kind, value)",
        "outcome = Outcome(name, number, position, kind, value)",
        seed=1,
    ),
    mutant(
        "settled numbers are applied",
        "ObjectMachine._take_calls",
        "if number <= floor:",
        "if number < 0:",
        seed=8,
    ),
    mutant(
        "acknowledgements are ignored", "ClientTable.enter", "client.settle(acknowledged)", "pass", seed=8
    ),
    mutant("the floor stays", "Client.settle", "self.floor = floor", "pass", seed=8),
    mutant(
        "eviction without watermark",
        "ClientTable.leave",
        "self.watermark = max(self.watermark, gone.position + 1)",
        "pass",
        seed=1,
    ),
    mutant("a watermark one too low", "ClientTable.leave", "gone.position + 1", "gone.position", seed=1),
    mutant("the watermark is not asked", "ClientTable.enter", "born < self.watermark or", "", seed=1),
    mutant("the busiest is forgotten", "ClientTable.enter", "self.clients.move_to_end(name)", "pass", seed=1),
    mutant("its last record is not noted", "ClientTable.enter", "client.position = position", "pass", seed=1),
    mutant(
        "clients without bound",
        "ClientTable.leave",
        "len(self.clients) > limits.clients_max",
        "False",
        seed=1,
    ),
    mutant(
        "outcomes of all clients without bound",
        "ClientTable.leave",
        "self.bytes > limits.table_bytes_max",
        "False",
    ),
    mutant(
        "outcomes of a client without bound",
        "ObjectMachine._take_calls",
        "if client.bytes > bytes_max:",
        "if False:",
    ),
    mutant(
        "the floor stays when outcomes go",
        "Client.shrink",
        "self.settle(next(iter(self.outcomes)))",
        "self.bytes -= OUTCOME_WEIGHT + len(self.outcomes.pop(next(iter(self.outcomes))).value)",
    ),
    mutant(
        "a client may be born in the future",
        "ClientTable.enter",
        "born < self.watermark or born > position",
        "born < self.watermark",
    ),
    mutant(
        "a new client's floor is ignored",
        "ClientTable.enter",
        "Client(acknowledged, position)",
        "Client(0, position)",
    ),
    mutant("a position is applied again", "ObjectMachine.apply", "if position < self.applied:", "if False:"),
    # Snapshots
    mutant(
        "the table is not in the snapshot",
        "ObjectMachine._resume",
        "self._table = ClientTable.of_rows(head.table, head.limits)",
        "pass",
        seed=1,
    ),
    mutant(
        "the watermark is not in the snapshot",
        "ClientTable.of_rows",
        "table.watermark = rows.watermark",
        "pass",
        3,
    ),
    mutant("a snapshot one position off", "ObjectMachine._head", "self.applied", "self.applied + 1", seed=1),
    mutant("the count is not in the snapshot", "ObjectMachine._head", "self.commands", "0", seed=1),
    mutant("the time is not in the snapshot", "ObjectMachine._head", "self.time_us", "0", seed=1),
    mutant(
        "the table is read backwards",
        "ClientTable.of_rows",
        "in rows.clients",
        "in rows.clients[::-1]",
        seed=1,
    ),
    mutant(
        "a restored client weighs nothing",
        "ClientTable.of_rows",
        "client.bytes += sum([OUTCOME_WEIGHT + len(outcome.value) for outcome in row.outcomes])",
        "pass",
        seed=1,
    ),
    mutant("hosts are not in the snapshot", "ObjectMachine._head", "self._hosts.rows()", "()"),
    mutant("the chain is not in the snapshot", "Digests.rows", "self.chain", "NO_CHAIN"),
    mutant(
        "a snapshot that is not compared",
        "ObjectMachine.snapshot",
        "codec.encode_exact if is_checked else codec.encode",
        "codec.encode",
    ),
    mutant("pieces that are not compared", "ObjectMachine.pieces", "is_exact=is_checked", "is_exact=False"),
    mutant(
        "sets as they come",
        "plain",
        "sorted([plain(item, depth) for item in value], key=write)",
        "[plain(item, depth) for item in value]",
    ),
    mutant(
        "dicts are sorted", "write", "msgspec.msgpack.Encoder()", "msgspec.msgpack.Encoder(order='sorted')"
    ),
    # What a command gets of the order
    mutant("random numbers of its own", "Moment.random", "Random(token)", "Random()", seed=1),
    mutant("random numbers of the record", "Moment.random", "Random(token)", "Random(self.position)", seed=1),
    mutant(
        "a token for each record",
        "Moment.token",
        "self.position * CALLS_PER_POSITION + self.index",
        "self.position * CALLS_PER_POSITION",
        seed=1,
    ),
    mutant("time runs backwards", "ObjectMachine.apply", "if time_us > self.time_us:", "if True:", seed=1),
    mutant("no stack is an outcome", "PROCESS_ERRORS", "RecursionError, ", ""),
    # Versions
    mutant(
        "versions of calls are ignored",
        "ObjectMachine._is_in_force",
        "self._current.type.runs_from <= version <= self.version",
        "True",
    ),
    mutant(
        "an upgrade that hosts do not know",
        "ObjectMachine._upgrade",
        "(lacking or not self._hosts.known(self.time_us))",
        "False",
    ),
    mutant(
        "an old program guesses",
        "ObjectMachine._found",
        "found = self.newest.find(version)",
        "found = self.newest.find(version) or self.newest",
    ),
    mutant("a new command before its version", "Version.commands", "if each.since <= version", ""),
    mutant(
        "a migration works on the state itself",
        "ObjectMachine._migrated",
        "self._current.codec.copy(self.state)",
        "self.state",
    ),
    mutant(
        "a host that crashed is never forgotten",
        "Hosts.known",
        "time_us - self._limits.host_forget_us",
        "-1",
    ),
    mutant("any class opens any object", "ObjectMachine._check_name", "if name != self.name:", "if False:"),
    # Divergence
    mutant("states are not compared", "_difference", "mine.state != other.state", "False"),
    mutant("outcomes are not compared", "_difference", "mine.outcomes != other.outcomes", "False"),
)
