"""Installs a peer outside the project and starts it, with the project's torch and transformers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes

FRONT_CORE, MODEL_CORE = 0, 1
MAX_BATCH, MAX_WAIT_MS = 32, 5
"""What every peer is told: the settings of their own examples, and the best of those that were tried."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer: what to install, how to start it, how to ask it."""

    name: str
    version: str
    path: str
    body: str
    """`%s` is replaced by the JSON of a text."""
    command: Callable[[Path, int, Path], list[str]]
    """From the directory of its venv's programs, the port and a directory of its own."""
    also: tuple[str, ...] = ()
    """Requirements beside the peer itself."""
    environment: Callable[[int], dict[str, str]] = field(default=lambda port: {})

    def install(self) -> Path:
        """The programs of the peer's own venv, made on first use. Raises `CalledProcessError`.

        The peer comes from PyPI; torch, transformers and the weights are those of the project's environment.
        """
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        home = cache / "tidegate-benchmarks" / f"{self.name}-{self.version}"
        if not (home / "complete").exists():
            subprocess.run(processes.python("-m", "venv", "--clear", str(home)), check=True)
            wanted = (f"{self.name}=={self.version}", *self.also)
            pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted]
            subprocess.run(pip, check=True)
            (home / "complete").touch()
        for path in home.glob("lib/python*/site-packages"):
            (path / "tidegate.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return home / "bin"


@dataclass(frozen=True, slots=True)
class Running:
    peer: Peer
    port: int
    pid: int
    ready_s: float


@contextlib.contextmanager
def serving(peer: Peer, directory: Path, port: int) -> Iterator[Running]:
    """Raises `StartFailed`, and `CalledProcessError` when it cannot be installed."""
    directory.mkdir(mode=0o700, parents=True)
    environment = {
        "MODEL_CORE": str(MODEL_CORE),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(processes.PROJECT_DIR),
    } | peer.environment(port)
    with processes.started(
        peer.name,
        peer.command(peer.install(), port, directory),
        core=FRONT_CORE,
        log_dir=directory,
        environment=environment,
        cwd=directory,  # some leave files where they start
    ) as process:
        ready_s = processes.wait_until(lambda: _answers(peer, port), process, peer.name, directory)
        yield Running(peer, port, process.pid, ready_s)


def _answers(peer: Peer, port: int) -> bool:
    body = peer.body.replace("%s", '"are you there?"').encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{peer.path}", data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
