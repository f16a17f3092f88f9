"""A processor's stack as data, and the one function that builds it: for nodes, simulator, replay and tests.

    StackSpec(1, rings=(RingSpec(config),), groups=GroupConfig())

A ring is run by an engine. It stands on its network; on several, a replicator stands between, and above the
ring the layer in which all members agree on the networks. Groups stand on the first ring; on every other one,
and on the first if there are no groups, stands a `Port`, which tells what is delivered. `between` are layers
between a ring and what stands on it, the lowest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from totempole.core.effects import LayerName
from totempole.core.io import Io, Scope, incarnation_of, records_of
from totempole.core.order import Between, Order, Port
from totempole.core.stack import Layer, Stack
from totempole.corel.config import LogConfig
from totempole.corel.layer import LAYER as COREL
from totempole.corel.layer import RUN_BYTES_MAX, Replica
from totempole.corel.member import Timer as CorelTimer
from totempole.errors import ConfigurationError
from totempole.groups.config import GroupConfig
from totempole.groups.layer import GroupLayer
from totempole.link import Link
from totempole.networks.layer import LAYER as NETWORKS
from totempole.networks.layer import Networks
from totempole.networks.layer import Timer as NetworksTimer
from totempole.rrp.accounts import Accounts
from totempole.rrp.config import RedundancyConfig
from totempole.rrp.copies import CopyReassembler
from totempole.rrp.hello import FORMATS as RRP_FORMATS
from totempole.rrp.layer import Replicator
from totempole.segment import Cutter, Reassembler
from totempole.srp.config import RingConfig
from totempole.srp.engine import LAYER as SRP
from totempole.srp.engine import SingleRing
from totempole.srp.formats import FORMATS
from totempole.srp.packets import RegularMessage, RegularToken
from totempole.types import ProcessorId
from totempole.wire import Codec
from totempole.wire.codec import Formats

if TYPE_CHECKING:
    from totempole.wire.seal import Keyring, Seal


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A network that the node is on. Its number is its place in the list."""

    segment_bytes: int | None = None
    """The largest datagram; None: what its ring's settings say."""
    name: str = ""
    capacity: int = 1
    """Beside those of the ring's other networks: how much of its messages this one gets."""


@dataclass(frozen=True, slots=True)
class RingSpec:
    config: RingConfig = field(default_factory=RingConfig)
    networks: tuple[int, ...] = (0,)
    redundancy: RedundancyConfig | None = None
    """How it uses its networks, if it is on several."""
    engine: str = "totem"
    between: tuple[Callable[[Scope, Order], Between], ...] = ()

    def __post_init__(self) -> None:
        if len(self.networks) > 1 and self.redundancy is None:
            raise ConfigurationError(
                f"a ring on {len(self.networks)} networks: say how it uses them (redundancy)"
            )
        if self.redundancy is not None:
            self.redundancy.copies_on(len(self.networks))
        if self.networks != tuple(range(self.networks[0], self.networks[0] + len(self.networks))):
            raise ConfigurationError(
                f"networks = {self.networks}: give a ring networks that follow each other"
            )


@dataclass(frozen=True, slots=True)
class StackSpec:
    processor: ProcessorId
    networks: tuple[NetworkSpec, ...] = (NetworkSpec(),)
    rings: tuple[RingSpec, ...] = (RingSpec(),)
    groups: GroupConfig | None = None
    log: LogConfig | None = None
    """A replica of the durable order, above the groups."""

    def __post_init__(self) -> None:
        used = [number for ring in self.rings for number in ring.networks]
        for number in used:
            if not 0 <= number < len(self.networks):
                raise ConfigurationError(
                    f"network = {number}: there are {len(self.networks)} networks, counted from 0"
                )
            if used.count(number) > 1:
                raise ConfigurationError(
                    f"network = {number}: it is used twice; each ring of a node needs networks of its own"
                )
        if self.log is not None and self.groups is None:
            raise ConfigurationError("a log stands on groups: give the node groups, too")
        if not self.rings:
            raise ConfigurationError("a node without a ring: give it one")


def _no_spread() -> float:
    return 0.0


REDUNDANT_FORMATS = Formats(*FORMATS.all, *RRP_FORMATS)


def new_codec(config: RingConfig, seal: Seal | None, routed: bool = False) -> Codec:
    """`routed`: for a ring on several networks."""
    formats = REDUNDANT_FORMATS if routed else FORMATS
    return Codec(formats, config.cluster_id, config.ring_kind, seal, bool(config.check_contents), routed)


@dataclass(frozen=True, slots=True)
class Parts:
    """What stacks are built of. A search puts a broken part in the place of a true one."""

    engines: Mapping[str, type[SingleRing]] = field(default_factory=lambda: {"totem": SingleRing})
    groups: type[GroupLayer] = GroupLayer
    replica: type[Replica] = Replica
    codec: Callable[[RingConfig, Any, bool], Codec] = new_codec
    replicator: type[Replicator] = Replicator
    accounts: type[Accounts] = Accounts
    networks: type[Networks] = Networks


class ProcessorStack(Stack):
    """A stack whose rings and groups can be looked at."""

    rings: list[SingleRing]
    groups: GroupLayer | None
    replica: Replica | None

    @property
    def ring(self) -> SingleRing:
        """The first one, which groups stand on."""
        return self.rings[0]

    def token_first(self, network: int = 0) -> bool:
        """Whether a token that waits beside data on this network should be taken first."""
        return self._on_network[network].token_first

    def __init__(
        self,
        spec: StackSpec,
        incarnation: int,
        io: Io,
        layers: list[Layer],
        links: dict[int, Link],
        rings: dict[int, SingleRing],
        replicators: list[Replicator],
        networks: list[Networks],
        groups: GroupLayer | None,
        replica: Replica | None,
    ) -> None:
        super().__init__(spec.processor, incarnation, io, layers, links)
        self.spec = spec
        self.rings = list(dict.fromkeys(rings.values()))
        self.replicators = replicators
        """Of the rings that are on several networks."""
        self.networks = networks
        self.groups = groups
        self.replica = replica
        self._on_network = rings


def build(
    spec: StackSpec,
    stable: Mapping[str, int],
    trace_kinds: frozenset[str] = frozenset(),
    keyring: Keyring | None = None,
    draw: Callable[[], float] = _no_spread,
    parts: Parts | None = None,
) -> ProcessorStack:
    """A new life of a processor. `stable` is what stable storage holds; no keyring, no seal."""
    parts = parts or Parts()
    incarnation = incarnation_of(stable)
    io = Io(trace_kinds, engines=len(spec.rings))
    layers: list[Layer] = []
    links: dict[int, Link] = {}
    rings: dict[int, SingleRing] = {}
    replicators: list[Replicator] = []
    networks: list[Networks] = []
    groups: GroupLayer | None = None
    for number, ring in enumerate(spec.rings):
        seal = _seal(keyring, ring.config, spec.processor, incarnation)
        codec = parts.codec(ring.config, seal, ring.redundancy is not None)
        below: Link | Replicator
        replicator: Replicator | None = None
        if ring.redundancy is None:
            below = links[ring.networks[0]] = _link(io, spec, ring, ring.networks[0], codec, incarnation)
        else:
            replicator = _replicator(io, spec, number, codec, incarnation, draw, parts, links, rings)
            below = replicator
        layers += [links[network] for network in ring.networks]
        engine = parts.engines[ring.engine](
            io,
            number,
            spec.processor,
            incarnation,
            ring.config,
            records_of(stable, SRP, number),
            codec,
            below,
            draw,
        )
        below.connect(engine)
        rings.update(dict.fromkeys(ring.networks, engine))
        if replicator is not None:
            layers.append(replicator)
            replicators.append(replicator)
        layers.append(engine)
        order: Any = engine
        if replicator is not None:
            assert ring.redundancy is not None
            order = parts.networks(
                Scope(io, NETWORKS, number, NetworksTimer),
                engine,
                spec.processor,
                replicator,
                ring.redundancy.probation_us,
            )
            engine.connect(order)
            layers.append(order)
            networks.append(order)
        for place, make in enumerate(ring.between):
            under, order = order, make(Scope(io, f"between{place}", number), order)
            _connect(under, order)
            layers.append(order)
        top: Any
        if spec.groups is not None and number == 0:
            scope = Scope(io, "groups")
            size = ring.config.packet_bytes_max
            top = groups = parts.groups(scope, order, spec.processor, incarnation, spec.groups, size)
        else:
            top = Port(Scope(io, "order", number), order)
        _connect(order, top)
        layers.append(top)
    replica: Replica | None = None
    if spec.log is not None:
        assert groups is not None, "a log stands on groups"
        scope = Scope(io, COREL, 0, CorelTimer)
        assert spec.groups is not None, "a log stands on groups"
        size = min(RUN_BYTES_MAX, spec.groups.message_bytes_max // 2)
        replica = parts.replica(scope, groups, spec.processor, incarnation, spec.log, draw, size)
        layers.append(replica)
    return ProcessorStack(spec, incarnation, io, layers, links, rings, replicators, networks, groups, replica)


def _connect(below: Any, above: Any) -> None:
    if isinstance(below, Between):
        below.above = above
    else:
        below.connect(above)


def _link(
    io: Io,
    spec: StackSpec,
    ring: RingSpec,
    network: int,
    codec: Codec,
    incarnation: int,
    reassembler: Reassembler | None = None,
) -> Link:
    config = ring.config
    size = spec.networks[network].segment_bytes or config.segment_bytes
    cutter = Cutter(size, spec.processor, incarnation, config.cluster_id)
    if reassembler is None:
        reassembler = Reassembler(config.reassembly_bytes_max, config.cluster_id)
    return Link(io, network, codec, cutter, reassembler)


def _replicator(
    io: Io,
    spec: StackSpec,
    number: int,
    codec: Codec,
    incarnation: int,
    draw: Callable[[], float],
    parts: Parts,
    links: dict[int, Link],
    rings: dict[int, SingleRing],
) -> Replicator:
    """The layer that joins a ring's networks, on a link for each, which it adds to `links`. Networks that are
    added and removed later are so in `links` and `rings`, too."""
    ring = spec.rings[number]
    config, redundancy = ring.config, ring.redundancy
    assert redundancy is not None, "a ring on one network stands on its link"
    capacities = tuple(spec.networks[network].capacity for network in ring.networks)
    accounts = parts.accounts(capacities, redundancy.copies_on(len(ring.networks)))
    reassembler = CopyReassembler(
        config.reassembly_bytes_max, io, accounts, ring.networks[0], config.cluster_id
    )
    for network in ring.networks:
        links[network] = _link(io, spec, ring, network, codec, incarnation, reassembler)
    mine = [links[network] for network in ring.networks]
    replicator = parts.replicator(
        io,
        number,
        spec.processor,
        incarnation,
        redundancy,
        tuple(spec.networks[network].name for network in ring.networks),
        capacities,
        codec,
        Cutter(mine[0].segment_bytes, spec.processor, incarnation, config.cluster_id),
        mine,
        accounts,
        reassembler,
        RegularMessage,
        RegularToken,
        draw,
    )
    for link in mine:
        link.connect(replicator)

    def new_link(network: int, segment_bytes: int) -> Link:
        cutter = Cutter(segment_bytes, spec.processor, incarnation, config.cluster_id)
        link = Link(io, network, codec, cutter, reassembler)
        link.connect(replicator)
        return link

    replicator.connect_links(_Links(new_link, links, rings, ring.networks[0]))
    return replicator


class _Links:
    """Puts links of a ring on several networks into the stack, and takes them out, while it runs."""

    def __init__(
        self,
        new_link: Callable[[int, int], Link],
        links: dict[int, Link],
        rings: dict[int, SingleRing],
        first: int,
    ) -> None:
        """`links` and `rings` are those of the stack, by network; `first` is the ring's first network."""
        self._new_link = new_link
        self._links = links
        self._rings = rings
        self._first = first

    def add(self, network: int, segment_bytes: int) -> Link:
        if network in self._links:
            raise ConfigurationError(f"network = {network}: it is used already; give another number")
        link = self._links[network] = self._new_link(network, segment_bytes)
        self._rings[network] = self._rings[self._first]
        return link

    def remove(self, network: int) -> None:
        del self._links[network], self._rings[network]


def _seal(keyring: Keyring | None, config: RingConfig, me: ProcessorId, incarnation: int) -> Seal | None:
    if keyring is None:
        return None
    from totempole.wire.seal import Seal  # a node without keys need not wait for `cryptography` to load

    return Seal(keyring, config.cluster_id, me, incarnation)


ORDER: LayerName = ("order", 0)
GROUPS: LayerName = ("groups", 0)
RING: LayerName = (SRP, 0)
LOG: LayerName = (COREL, 0)
"""The names of the layers that a node listens to (`Tell.layer`)."""
