"""The networks of a node in its loop: opened at the start, watched, added and removed while the node runs.

The loop's epoll has the sockets of every network that is open. What happens to a network while the node runs
becomes an input of the stack: its path takes shorter segments, it goes and comes back, or the settings have
it no longer. Each life of the processor begins with the networks as they were configured, so that the stack
hears of all that has changed since (`begin_life`).
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from totempole.core.inputs import Input, Narrowed
from totempole.errors import NetworkAbsentError, TotemError
from totempole.rrp.commands import AddNetwork, NetworkBack, NetworkLost, RemoveNetwork
from totempole.runtime.config import NodeConfig
from totempole.runtime.network import Network, check_networks, check_separate
from totempole.runtime.network_config import address_text
from totempole.runtime.reloading import (
    NEEDS_RESTART,
    NOT_RELOADED,
    check_window,
    differences,
    with_networks_of,
)
from totempole.runtime.reports import Reports
from totempole.runtime.sockets import Address
from totempole.srp.config import RingConfig
from totempole.stack import NetworkSpec, StackSpec
from totempole.types import ProcessorId

NOT_YET_US = 250_000
"""A change of settings that comes before the stack has started is tried again this much later."""


class Host(Protocol):
    """What the networks need of the driver."""

    def feed(self, given: Input) -> None: ...

    def fail(self, error: TotemError) -> None: ...

    def at(self, due_us: int, function: Callable[[], None]) -> None: ...

    def now_us(self) -> int: ...

    def call(self, function: Callable[[], None]) -> None:
        """For any thread."""
        ...


class NetworkSet:
    """All methods but `addresses_of` are for the loop's thread."""

    def __init__(self, config: NodeConfig, host: Host, reports: Reports) -> None:
        self.config = config
        """The settings in force: `[[network]]` tables may change while the node runs."""
        self.spec: StackSpec
        """The stack of the processor's next life, on the networks in force."""
        self.networks: list[Network] = []
        self.own_addresses: set[Address] = set()
        self._host = host
        self._reports = reports
        self._epoll: select.epoll
        self._begun = False
        """Whether the stack has started. An input before Start would belong to no life."""

    # Start and end

    def open(self, logger: logging.Logger) -> RingConfig:
        """Opens all networks. Returns the first ring's settings, fitted to what the sockets take."""
        config = self.config
        for number, settings in enumerate(config.networks):
            name, others = config.network_name(number), config.networks_beside(number)
            self._append(Network(number, settings, name, others))
        check_networks(self.networks)
        self._note_own_addresses()
        rings = config.rings if len(config.rings) > 1 else config.rings * len(self.networks)
        fitted = [network.fit(ring, logger) for network, ring in zip(self.networks, rings, strict=True)]
        self.spec = config.stack(fitted)
        return fitted[0]

    def watch(self, epoll: select.epoll) -> None:
        """Has the loop's epoll wait for the sockets of all networks, from now on."""
        self._epoll = epoll
        for network in self.networks:
            self._watch(network)

    def start(self) -> None:
        for network in self.networks:
            network.start(self._host.call)

    def begin_life(self) -> None:
        """Feeds a stack that has just started what has changed since the networks were configured."""
        self._begun = True
        for network, spec in zip(self.networks, self.spec.networks, strict=True):
            if network.segment_bytes != spec.segment_bytes:
                self._host.feed(Narrowed(network.number, network.segment_bytes))
            if not network.is_there:
                self._host.feed(NetworkLost(network.number))

    def stop(self) -> None:
        for network in self.networks:
            network.stop()

    def close(self) -> None:
        for network in self.networks:
            network.sockets.close()

    def _append(self, network: Network) -> None:
        self.networks.append(network)
        network.sockets.on_path_refusal = lambda fits: self._host.call(lambda: self._narrow(network, fits))
        network.on_unreachable = self._reports.unreachable

    def _watch(self, network: Network) -> None:
        if network.sockets.is_open:
            self._register(network.sockets.all)
        network.on_opened, network.on_closing = self._register, self._unregister

    def _register(self, sockets: Sequence[socket.socket]) -> None:
        for sock in sockets:
            self._epoll.register(sock, select.EPOLLIN)

    def _unregister(self, sockets: Sequence[socket.socket]) -> None:
        for sock in sockets:
            self._epoll.unregister(sock)

    def _note_own_addresses(self) -> None:
        self.own_addresses.clear()
        self.own_addresses.update(network.own for network in self.networks)

    # What happens to a network

    def look(self) -> None:
        """Looks at the interfaces, which come and go and may take shorter packets than before. Called a few
        times a second."""
        for network in self.networks:
            if not network.alone:
                self._follow(network)
        try:
            for network in self.networks:
                self._follow_path(network)
        except TotemError as error:
            self._host.fail(error)

    def _follow(self, network: Network) -> None:
        was_there = network.is_there
        if network.follow(self.networks) and self._begun:  # opened again
            self._host.feed(Narrowed(network.number, network.segment_bytes))
        if network.is_there != was_there:
            self._reports.network_changed(network)
            if self._begun:
                self._host.feed((NetworkBack if network.is_there else NetworkLost)(network.number))

    def _follow_path(self, network: Network) -> None:
        """Raises NetworkAbsentError if a ring's only network is gone."""
        try:
            fits = network.interface_bytes()
        except NetworkAbsentError:
            if network.alone:
                raise
            return  # the next look finds that it is gone
        if fits < network.segment_bytes:
            self._narrow(network, fits)

    def _narrow(self, network: Network, fits: int) -> None:
        before = network.segment_bytes
        if network in self.networks and network.narrows_to(fits):
            self._reports.log(logging.WARNING, "segments are too long for the path", bytes=before, now=fits)
            self._host.feed(Narrowed(network.number, fits))

    # Settings that change while the node runs

    def change_settings(self, config: NodeConfig) -> None:
        """Takes what can be taken while the node runs, and tells what needs a restart (`reloading`)."""
        if not self._begun:
            self._host.at(self._host.now_us() + NOT_YET_US, lambda: self.change_settings(config))
            return
        try:
            wanted = with_networks_of(self.config, config)
            while len(self.networks) > len(wanted.networks):
                self._remove_last()
            while len(self.networks) < len(wanted.networks):
                self._add_next(wanted)
        except (TotemError, OSError) as error:
            self._reports.log(logging.ERROR, NOT_RELOADED, reason=str(error))
            return
        changed = differences(self.config, config)
        if changed:
            self._reports.log(logging.WARNING, NEEDS_RESTART, settings=", ".join(changed))

    def _add_next(self, config: NodeConfig) -> None:
        """Adds the first network of these settings that the node does not have."""
        number = len(self.networks)
        settings, name = config.networks[number], config.network_name(number)
        network = Network(number, settings, name, config.networks_beside(number))
        try:
            if network.sockets.is_open:
                check_separate(network, self.networks)
            check_window(network.sockets.receive_buffer_bytes, self.spec.rings[0].config.window_bytes, name)
            self._append(network)
            self._host.feed(AddNetwork(number, network.segment_bytes, name, settings.capacity))
        except BaseException:
            network.sockets.close()
            del self.networks[number:]
            raise
        spec = NetworkSpec(network.segment_bytes, name, settings.capacity)
        self._have((*self.spec.networks, spec), config)
        self._watch(network)
        network.start(self._host.call)
        self._reports.network_added(network)
        if not network.is_there:
            self._host.feed(NetworkLost(number))

    def _remove_last(self) -> None:
        network = self.networks[-1]
        self._host.feed(RemoveNetwork(network.number))
        self.networks.pop()
        self._have(self.spec.networks[:-1], self.config)
        network.stop()
        if network.sockets.is_open:
            self._unregister(network.sockets.all)
            network.sockets.close()
        self._reports.log(logging.INFO, "network removed", network=network.name)

    def _have(self, specs: tuple[NetworkSpec, ...], config: NodeConfig) -> None:
        """For the next life, for the next change of settings, and for what arrives from now on."""
        ring = replace(self.spec.rings[0], networks=tuple(range(len(specs))))
        self.spec = replace(self.spec, networks=specs, rings=(ring,))
        self.config = replace(self.config, more_networks=config.more_networks[: len(specs) - 1])
        self._note_own_addresses()

    # What is shown

    def addresses_of(self, processor: ProcessorId) -> list[str]:
        """Where a processor is, on each network that knows. For any thread."""
        networks = tuple(self.networks)
        if processor == self.config.processor:
            return [address_text(*network.own) for network in networks]
        found = (network.book.data_address(processor) for network in networks)
        return [address_text(*address) for address in found if address is not None]
