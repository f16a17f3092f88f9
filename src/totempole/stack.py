"""A processor's stack as data, and the one function that builds it: for nodes, simulator, replay and tests.

    StackSpec(1, rings=(RingSpec(config),), groups=GroupConfig())

A ring stands on its networks and is run by an engine. Groups stand on the first ring; on every other one, and
on the first if there are no groups, stands a `Port`, which tells what is delivered. `between` are layers
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
from totempole.errors import ConfigurationError
from totempole.groups.config import GroupConfig
from totempole.groups.layer import GroupLayer
from totempole.link import Link
from totempole.segment import Cutter, Reassembler
from totempole.srp.config import RingConfig
from totempole.srp.engine import LAYER as SRP
from totempole.srp.engine import SingleRing
from totempole.srp.formats import FORMATS
from totempole.types import ProcessorId
from totempole.wire import Codec

if TYPE_CHECKING:
    from totempole.wire.seal import Keyring, Seal


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A network that the node is on. Its number is its place in the list."""

    segment_bytes: int | None = None
    """The largest datagram; None: what its ring's settings say."""


@dataclass(frozen=True, slots=True)
class RingSpec:
    config: RingConfig = field(default_factory=RingConfig)
    network: int = 0
    engine: str = "totem"
    between: tuple[Callable[[Scope, Order], Between], ...] = ()


@dataclass(frozen=True, slots=True)
class StackSpec:
    processor: ProcessorId
    networks: tuple[NetworkSpec, ...] = (NetworkSpec(),)
    rings: tuple[RingSpec, ...] = (RingSpec(),)
    groups: GroupConfig | None = None

    def __post_init__(self) -> None:
        used = [ring.network for ring in self.rings]
        for number in used:
            if not 0 <= number < len(self.networks):
                raise ConfigurationError(
                    f"network = {number}: there are {len(self.networks)} networks, counted from 0"
                )
            if used.count(number) > 1:
                raise ConfigurationError(f"network = {number}: two rings of one node need a network each")
        if not self.rings:
            raise ConfigurationError("a node without a ring: give it one")


def _no_spread() -> float:
    return 0.0


def new_codec(config: RingConfig, seal: Seal | None) -> Codec:
    return Codec(FORMATS, config.cluster_id, config.ring_kind, seal, bool(config.check_contents))


@dataclass(frozen=True, slots=True)
class Parts:
    """What stacks are built of. A search puts a broken part in the place of a true one."""

    engines: Mapping[str, type[SingleRing]] = field(default_factory=lambda: {"totem": SingleRing})
    groups: type[GroupLayer] = GroupLayer
    codec: Callable[[RingConfig, Any], Codec] = new_codec


class ProcessorStack(Stack):
    """A stack whose rings and groups can be looked at."""

    rings: list[SingleRing]
    groups: GroupLayer | None

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
        groups: GroupLayer | None,
    ) -> None:
        super().__init__(spec.processor, incarnation, io, layers, links)
        self.spec = spec
        self.rings = list(rings.values())
        self.groups = groups
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
    groups: GroupLayer | None = None
    for number, ring in enumerate(spec.rings):
        codec = parts.codec(ring.config, _seal(keyring, ring.config, spec.processor, incarnation))
        link = links[ring.network] = _link(io, spec, ring, codec, incarnation)
        engine = rings[ring.network] = parts.engines[ring.engine](
            io,
            number,
            spec.processor,
            incarnation,
            ring.config,
            records_of(stable, SRP, number),
            codec,
            link,
            draw,
        )
        link.connect(engine)
        layers += [link, engine]
        order: Any = engine
        for place, make in enumerate(ring.between):
            below, order = order, make(Scope(io, f"between{place}", number), order)
            _connect(below, order)
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
    return ProcessorStack(spec, incarnation, io, layers, links, rings, groups)


def _connect(below: Any, above: Any) -> None:
    if isinstance(below, Between):
        below.above = above
    else:
        below.connect(above)


def _link(io: Io, spec: StackSpec, ring: RingSpec, codec: Codec, incarnation: int) -> Link:
    config = ring.config
    size = spec.networks[ring.network].segment_bytes or config.segment_bytes
    cutter = Cutter(size, spec.processor, incarnation, config.cluster_id)
    reassembler = Reassembler(config.reassembly_bytes_max, config.cluster_id)
    return Link(io, ring.network, codec, cutter, reassembler)


def _seal(keyring: Keyring | None, config: RingConfig, me: ProcessorId, incarnation: int) -> Seal | None:
    if keyring is None:
        return None
    from totempole.wire.seal import Seal  # a node without keys need not wait for `cryptography` to load

    return Seal(keyring, config.cluster_id, me, incarnation)


ORDER: LayerName = ("order", 0)
GROUPS: LayerName = ("groups", 0)
RING: LayerName = (SRP, 0)
"""The names of the layers that a node listens to (`Tell.layer`)."""
