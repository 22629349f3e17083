"""Is a port free, and if not: whose is it and which setting chooses another."""

from __future__ import annotations

import errno
import socket

import psutil

from console.embedded.errors import ServiceError


def require_free(host: str, port: int, option: str, variable: str) -> None:
    """Raises `ServiceError` naming the owner of a busy port and the setting to change."""
    family, _, _, _, address = _resolve(host, port, option)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise ServiceError(_complaint(error, host, port, option, variable)) from error


def owner_of(port: int) -> str:
    """`process 123 (python …)`, as far as this user may see it."""
    for connection in _listeners():
        if connection.laddr and connection.laddr.port == port and connection.pid:
            return f"process {connection.pid} ({_command(connection.pid)})"
    return "a process of another user"


def _resolve(host: str, port: int, option: str) -> tuple:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, OverflowError) as error:
        raise ServiceError(f"cannot listen on {host}:{port} ({error}); change {option}") from error


def _complaint(error: OSError, host: str, port: int, option: str, variable: str) -> str:
    if error.errno != errno.EADDRINUSE:
        return f"cannot listen on {host}:{port}: {error.strerror}; choose another with {option} or {variable}"
    return (
        f"port {port} on {host} is used by {owner_of(port)}. "
        f"Stop it, or choose another port with {option} or {variable}."
    )


def _listeners() -> list:
    try:
        return [c for c in psutil.net_connections(kind="tcp") if c.status == psutil.CONN_LISTEN]
    except psutil.AccessDenied:
        return []


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:120]
    except psutil.Error:
        return "unknown command"
