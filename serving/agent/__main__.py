"""`python -m serving.agent`: keeps this host's workers running."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys

import structlog
import uvloop

from serving import logs, runtime
from serving.agent.app import Agent, cores_from
from serving.agent.launchers.local import LocalLauncher
from serving.parenting import die_with_parent
from serving.seam.postgres import PostgresSeam

log = structlog.get_logger(__name__)


def main() -> int:
    """Exit status: 0 after a graceful stop, 2 for wrong settings or a second agent on one directory."""
    die_with_parent()
    os.umask(0o077)
    logs.configure({"level": os.environ.get("TIDEGATE_LOG_LEVEL", "INFO")})
    try:
        settings = runtime.read(needs_pepper=False)
        _require_alone(settings)
        uvloop.run(_run(settings))
    except ValueError as error:
        log.error("agent.cannot_start", error=str(error))
        return 2
    return 0


async def _run(settings: runtime.Runtime) -> None:
    if not settings.database_url:
        raise ValueError("DATABASE_URL is not set")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    seam = PostgresSeam(settings.database_url, name="tidegate-agent")
    launcher = LocalLauncher(settings.run_dir / "specs")
    try:
        await Agent(settings, seam, launcher, cores_from(os.environ)).run(stop)
    finally:
        await seam.close()


def _require_alone(settings: runtime.Runtime) -> None:
    """Two agents on one directory would each start every worker. The lock ends with the process."""
    directory = settings.state_dir / "agent"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"another agent runs on {settings.state_dir}") from None


if __name__ == "__main__":
    sys.exit(main())
