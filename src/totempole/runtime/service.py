"""A node with its clients: a driver without a program above it, that other threads can stop and reload."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

from totempole.core.order import Deliver, InstallConfiguration
from totempole.errors import ConfigurationError, NetworkError, TotemError
from totempole.groups import Batch
from totempole.runtime import keyring
from totempole.runtime.config import NodeConfig
from totempole.runtime.driver import Driver
from totempole.runtime.log_requests import LogRequests
from totempole.runtime.logs import event
from totempole.runtime.network_requests import NetworkRequests
from totempole.runtime.packet_filter import PacketFilter
from totempole.runtime.reloading import NOT_RELOADED
from totempole.runtime.snapshot import snapshot
from totempole.wire.seal import Keyring

EXIT_LEFT, EXIT_MISCONFIGURED, EXIT_FAILED = 0, 2, 3


class NoApplication:
    """Takes part in the ring, and keeps nothing of what it orders."""

    def delivered(self, packet: Deliver, messages: Batch) -> None: ...

    def installed(self, installed: InstallConfiguration) -> None: ...

    def ready(self) -> None: ...


class Service:
    """`run` blocks. `stop` and `reload` may be called from a signal handler or another thread."""

    def __init__(
        self,
        config: NodeConfig,
        logger: logging.Logger,
        reread: Callable[[], NodeConfig] | None = None,
        packet_filter: PacketFilter | None = None,
    ) -> None:
        """`reread` gives the settings as they are by now, where they are in a file. `packet_filter`: only in
        a lab."""
        self._config = config
        self._reread = reread
        self._logger = logger
        self._stopping = False
        self._driver = Driver(
            config, NoApplication(), logger, load_keyring(config, logger), accepts_clients=True
        )
        self._driver.receiver.filter = self.packet_filter = packet_filter
        self.network_requests = NetworkRequests(self._driver) if self._driver.stack.networks else None
        self.log_requests = LogRequests(self._driver) if self._driver.log is not None else None

    def serve(self, client: socket.socket) -> None:
        """The far end of the session of the program that embeds this node."""
        self._driver.serve(client)

    def run(self) -> int:
        try:
            self._driver.run()
        except TotemError as error:  # the driver has said why
            again = error.may_pass or not isinstance(error, NetworkError)
            return EXIT_FAILED if again else EXIT_MISCONFIGURED
        return EXIT_LEFT

    def stop(self) -> None:
        """Leaves the ring gracefully; the second time at once."""
        if self._stopping:
            self._driver.stop_at_once()
        else:
            self._stopping = True
            self._driver.leave()

    def reload(self) -> None:
        """Reads the key file again, and the settings. A file that cannot be used changes nothing."""
        if self._config.security.key_file is not None or self._reread is None or not self.network_requests:
            try:
                reload_keys(self._config, self._driver, self._logger)
            except (TotemError, OSError) as error:
                event(self._logger, logging.ERROR, "key file not reloaded", reason=str(error))
        if self._reread is not None:
            try:
                self._driver.change_settings(self._reread())
            except (TotemError, OSError) as error:
                event(self._logger, logging.ERROR, NOT_RELOADED, reason=str(error))

    def close(self) -> None:
        """For a service that is not run after all."""
        self._driver.close()

    def snapshot(self) -> dict[str, Any]:
        return snapshot(self._driver)


def reload_keys(config: NodeConfig, driver: Driver, logger: logging.Logger) -> None:
    """Raises, and changes nothing, if the file cannot be used."""
    keys = key_file_again(config)
    driver.rekey(keys)
    ids = tuple(key.id for key in keys.keys)
    event(logger, logging.INFO, "key file reloaded", active=keys.active.id, keys=ids)


def key_file_again(config: NodeConfig) -> Keyring:
    """What the key file has by now."""
    if config.security.key_file is None:
        raise ConfigurationError("the node is unsealed and has no key_file: set one, then start it again")
    return keyring.load(config.security.key_file)


def load_keyring(config: NodeConfig, logger: logging.Logger) -> Keyring | None:
    """The keys, or None when the configuration says in so many words that there is no seal."""
    if config.security.key_file is not None:
        return keyring.load(config.security.key_file)
    if not config.security.unsealed:
        raise ConfigurationError("key_file is missing: give one, or set unsealed = true")
    event(logger, logging.WARNING, "running unsealed: whoever reaches the ports can forge messages")
    return None
