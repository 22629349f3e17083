"""The worker's line to its agent: JSON lines on a socket inherited as fd 3.

Worker → agent: `{"state": …, "reason": …, "memory_bytes": …, "load_s": …}`, a validation report, or each
few seconds `{"state": …, "is_beat": true}`: silence means that the process hangs. When something happened
that people should know, `{"state": …, "event": …, "numbers": {…}}`.
Agent → worker: `{"do": "drain"}` or `{"do": "stop"}`. End of file means that the agent is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Literal

import msgspec
import structlog

from serving.contract import ReplicaState

log = structlog.get_logger(__name__)

CONTROL_FD = 3


class StateLine(msgspec.Struct, omit_defaults=True):
    state: ReplicaState
    reason: str = ""
    memory_bytes: int | None = None
    load_s: float | None = None
    is_beat: bool = False
    """Nothing is new; it lives."""
    event: str = ""
    """Dotted past tense: something happened that an operator wants to know; the state is as it was."""
    numbers: dict[str, int | float] = {}
    """Of the event."""


class Command(msgspec.Struct):
    do: Literal["drain", "stop"]


_decode_command = msgspec.json.Decoder(Command).decode


class ControlChannel:
    """Blocking, short writes; reads as a task. Without a socket on fd 3 (started by hand) it is silent."""

    def __init__(self, channel: socket.socket | None) -> None:
        self._channel = channel

    @classmethod
    def inherited(cls, fd: int = CONTROL_FD) -> ControlChannel:
        """The socket the agent passed, if `TIDEGATE_CONTROL_FD` or fd 3 is one."""
        fd = int(os.environ.pop("TIDEGATE_CONTROL_FD", fd))
        try:
            return cls(socket.socket(fileno=fd))
        except OSError:
            return cls(None)

    def send(self, line: msgspec.Struct) -> None:
        """Never raises: a dead agent is noticed by the reader."""
        if self._channel is None:
            return
        try:
            self._channel.settimeout(5.0)
            self._channel.sendall(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            log.warning("control.lost", error=str(error))

    async def follow(self, obey: Callable[[str], None]) -> None:
        """Call `obey` with each command, and with `orphaned` when the agent is gone."""
        if self._channel is None:
            return
        reader, writer = await asyncio.open_connection(sock=self._channel.dup())
        try:
            async for line in reader:
                self._obey(line, obey)
        except OSError as error:
            log.warning("control.broken", error=str(error))
        finally:
            writer.close()
        obey("orphaned")

    def _obey(self, line: bytes, obey: Callable[[str], None]) -> None:
        try:
            command = _decode_command(line)
        except msgspec.DecodeError as error:
            log.warning("control.unknown_command", error=str(error))
            return
        obey(command.do)
