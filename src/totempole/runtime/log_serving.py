"""The node's side of its log service: a process of its own, started again when it ends.

The service (`log_child.py`) reads its settings from a pipe that stays open while the node lives: a node that
is killed takes its service along. What the service says goes to the node's own standard error. Damage of the
log comes by another pipe.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from totempole.log_service.settings import ServiceSettings, decode_report, encode_settings
from totempole.runtime.config import NodeConfig
from totempole.session.log_frames import log_socket_of

COMMAND = (sys.executable, "-P", "-m", "totempole.runtime.log_child")
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 10.0
LASTING_S = 10.0
"""After a life of so long the pauses begin again."""
END_S = 2.0
"""How long it may take to end."""
REPORTS_MAX = 100
"""Damages that are told; a disk that fails may have many more."""


def settings_of(config: NodeConfig) -> ServiceSettings:
    """The clients' own: the same users, certificates and permissions."""
    clients = config.clients

    def text(path: object) -> str:
        return "" if path is None else str(path)

    return ServiceSettings(
        directory=str(config.log_directory),
        cluster_id=config.ring.cluster_id,
        processor=config.processor,
        socket=str(log_socket_of(config.clients_socket)) if clients.enabled else "",
        socket_mode=clients.socket_mode,
        users=clients.users,
        listen=config.log.listen,
        tls_certificate=text(clients.tls_certificate),
        tls_key=text(clients.tls_key),
        tls_authorities=text(clients.tls_authorities),
        readers_max=clients.clients_max,
        snapshots_bytes_max=config.log.snapshots_bytes_max,
        log_level=config.logging.level,
        log_format=config.logging.format,
    )


class LogServing:
    """Starts the service on a thread of its own, so that the ring's never waits for it."""

    def __init__(
        self, config: NodeConfig, log: Callable[..., None], damaged: Callable[[str], object]
    ) -> None:
        """`log` writes a line, `damaged` is called with each damage of the log, once; from any thread."""
        self._settings = settings_of(config)
        self._log = log
        self._damaged = damaged
        self._reports: set[str] = set()
        self._starts = 0
        self._last_exit: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="totempole-log-service", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the service."""
        with self._lock:
            self._is_closing.set()
            if self._process is not None:
                _hang_up(self._process)
        if self._thread.ident is not None:
            self._thread.join()

    def document(self) -> dict[str, Any]:
        """For the status."""
        process = self._process
        return {
            "pid": process.pid if process is not None else None,
            "restarts": max(0, self._starts - 1),
            "last_exit": self._last_exit,
            "socket": self._settings.socket,
            "listen": self._settings.listen,
        }

    # On its thread

    def _run(self) -> None:
        pause_s = PAUSE_FIRST_S
        while not self._is_closing.is_set():
            started_s = time.monotonic()
            try:
                self._serve()
            except OSError as error:
                self._log(logging.ERROR, "the log service cannot be started", reason=str(error))
            if time.monotonic() - started_s >= LASTING_S:
                pause_s = PAUSE_FIRST_S
            self._is_closing.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _serve(self) -> None:
        """One life of the process."""
        with self._lock:
            if self._is_closing.is_set():
                return
            process = self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._starts += 1
            assert process.stdin is not None, "it has a pipe"
            with suppress(BrokenPipeError):  # `close`, which closes the pipe, waits for the lock
                process.stdin.write(encode_settings(self._settings))
                process.stdin.flush()
        listening = threading.Thread(
            target=self._listen, args=(process,), name="totempole-log-service-reports", daemon=True
        )
        listening.start()
        self._log(logging.INFO, "log service started", service=process.pid, socket=self._settings.socket)
        self._last_exit = _wait(process, self._is_closing)
        self._process = None
        with suppress(OSError):
            process.stdin.close()
        listening.join()
        if not self._is_closing.is_set():
            self._log(
                logging.WARNING, "the log service has ended, and is started again", exit=self._last_exit
            )

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Until the process ends."""
        assert process.stdout is not None, "it has a pipe"
        with process.stdout:
            for line in process.stdout:
                with suppress(ValueError):  # it was killed amid a line
                    text = decode_report(line)
                    if text not in self._reports and len(self._reports) < REPORTS_MAX:
                        self._reports.add(text)
                        self._damaged(text)


def _hang_up(process: subprocess.Popen[bytes]) -> None:
    """It ends when its input does."""
    assert process.stdin is not None, "it has a pipe"
    with suppress(OSError):
        process.stdin.close()


def _wait(process: subprocess.Popen[bytes], is_closing: threading.Event) -> int:
    while True:
        try:
            return process.wait(END_S)
        except subprocess.TimeoutExpired:
            if is_closing.is_set():
                process.kill()
                return process.wait()
