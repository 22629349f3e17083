"""An embedded Valkey on a private unix socket: live frames and the task broker.

Appended to disk once a second: a crash may lose the last second of queued tasks, which their outbox
rows dispatch again, and of live frames, which only a chart misses.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from console.embedded.identity import ourselves
from console.embedded.leftovers import wait_for_leftover
from console.embedded.owned import Ladder, OwnedProcess

_STOP: Ladder = ((signal.SIGTERM, 10.0),)


class Valkey:
    """Start, watch, stop; the same shape as `Postgres`."""

    name = "valkey"
    variable = "VALKEY_URL"

    def __init__(
        self, program: Path, data_dir: Path, socket_dir: Path, log_path: Path, durable: bool
    ) -> None:
        self._data_dir = data_dir
        self._pid_file = data_dir / "valkey.pid"
        self._socket = socket_dir / "valkey.sock"
        command = ourselves().wrap([program, *self._options(durable)], signal.SIGTERM)
        self.process = OwnedProcess(self.name, command, log_path, _STOP)

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def prepare(self) -> None:
        self._data_dir.mkdir(mode=0o700, exist_ok=True)

    def start(self) -> None:
        """Spawn the server; `is_ready` tells when it has read its file and answers."""
        wait_for_leftover(self.name, self._pid_file, self._data_dir)
        self.process.start({"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"})

    def is_ready(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(2.0)
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def _options(self, durable: bool) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._data_dir),
            "pidfile": str(self._pid_file),
            "save": "",
            "appendonly": "yes" if durable else "no",
            "appendfsync": "everysec",
            "maxmemory": "256mb",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [part for name, value in settings.items() for part in (f"--{name}", value)]
