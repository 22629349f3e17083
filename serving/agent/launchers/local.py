"""Workers as subprocesses of the agent, each with a log file and a control socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from serving.agent.launchers import Job, OnExit, OnLine
from serving.agent.launchers.allocation import allocation
from serving.parenting import adoption_environment
from serving.seam.private_file import PrivateFile

MAX_LINE_BYTES = 4 << 20
PROJECT_DIR = Path(__file__).resolve().parent.parent.parent.parent
CONTROL_FD_VARIABLE = "TIDEGATE_CONTROL_FD"

# A worker may run a model's own code: it learns neither the database nor any secret.
_WITHHELD = (
    "DATABASE_URL",
    "TIDEGATE_SECRET_KEY",
    "TIDEGATE_KEY_PEPPER",
    "TIDEGATE_AUDIT_KEY",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
)
WORKER_COMMAND = (sys.executable, "-m", "serving.worker")


class LocalLauncher:
    """`spec_dir` holds the spec files. Call it from the thread that lives as long as the agent."""

    def __init__(
        self,
        spec_dir: Path,
        command: Sequence[str] = WORKER_COMMAND,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._spec_dir = spec_dir
        self._command = command
        known = {name: value for name, value in environ.items() if name not in _WITHHELD}
        self._environ = known | allocation(known)

    async def launch(self, job: Job, on_line: OnLine, on_exit: OnExit) -> LocalHandle:
        """See `Launcher.launch`."""
        spec_path = self._spec_dir / f"{job.name}.json"
        PrivateFile(spec_path).replace([job.spec])
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._spawn([*self._command, "--spec", str(spec_path), *job.arguments], job, theirs)
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        return LocalHandle(process, job.log_path, reader, writer, on_line, on_exit)

    def _spawn(self, command: Sequence[str], job: Job, control: socket.socket) -> subprocess.Popen[bytes]:
        environment = self._environ | adoption_environment() | {CONTROL_FD_VARIABLE: str(control.fileno())}
        job.log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(job.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(control.fileno(),),
                env=environment,
                cwd=PROJECT_DIR,
                start_new_session=True,
            )


class LocalHandle:
    """Watches one worker: lines first, then its exit by pidfd, so that nothing polls."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        log_path: Path,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_line: OnLine,
        on_exit: OnExit,
    ) -> None:
        self._process = process
        self._log_path = log_path
        self._writer = writer
        self._exited = asyncio.Event()
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)
        self._task = asyncio.create_task(self._watch(reader, on_line, on_exit))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line + b"\n")

    def kill(self) -> None:
        self._process.kill()

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self._exited.set()

    async def _watch(self, reader: asyncio.StreamReader, on_line: OnLine, on_exit: OnExit) -> None:
        """A grandchild may hold the socket open after the exit, so the exit alone ends the reading."""
        lines = asyncio.create_task(_follow(reader, on_line))
        await self._exited.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(lines, 1.0)
        self._writer.close()
        on_exit(describe(self._process.returncode, self._log_path))


async def _follow(reader: asyncio.StreamReader, on_line: OnLine) -> None:
    # An over-long line and a reset end the listening, not the agent: the exit will be noticed anyway.
    with contextlib.suppress(ValueError, OSError):
        while line := await reader.readline():
            on_line(line)


def describe(code: int, log_path: Path) -> str:
    """`the worker was killed by SIGKILL` or `the worker ended with code 1: <last line of its log>`."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the worker was killed by {signal.Signals(-code).name}"
    last = last_line(log_path)
    return f"the worker ended with code {code}" + (f": {last}" if last and code else "")


def last_line(path: Path) -> str:
    """The last line with text, at most 300 characters; empty when the log cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 8192))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
