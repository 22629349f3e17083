"""Installs mosec outside the project and starts it, with the project's torch and transformers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes

VERSION = "0.9.8"
FRONT_CORE, MODEL_CORE = 0, 1


@dataclass(frozen=True, slots=True)
class Peer:
    port: int
    pid: int
    ready_s: float
    path: str = "/inference"
    body: str = '{"text": %s}'


def install() -> Path:
    """The interpreter of mosec's own venv, made on first use. Raises `CalledProcessError`.

    mosec comes from PyPI; torch, transformers and the weights are those of the project's environment.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    home = cache / "tidegate-benchmarks" / f"mosec-{VERSION}"
    python = home / "bin" / "python"
    if not (home / "bin" / "mosec").exists():
        subprocess.run(processes.python("-m", "venv", "--clear", str(home)), check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"mosec=={VERSION}"], check=True)
    for path in home.glob("lib/python*/site-packages"):
        (path / "tidegate.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@contextlib.contextmanager
def serving(directory: Path, port: int) -> Iterator[Peer]:
    """Raises `StartFailed`."""
    directory.mkdir(mode=0o700, parents=True)
    environment = {
        "MODEL_CORE": str(MODEL_CORE),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    arguments = ("--address", "127.0.0.1", "--port", str(port), "--timeout", "30000", "--capacity", "4096")
    command = [str(install()), "-m", "benchmarks.peers.mosec_server", *arguments]
    with processes.started(
        "mosec", command, core=FRONT_CORE, log_dir=directory, environment=environment
    ) as process:
        ready_s = processes.wait_until(lambda: _answers(port), process, "mosec", directory)
        yield Peer(port=port, pid=process.pid, ready_s=ready_s)


def _answers(port: int) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/inference", data=b'{"text": "are you there?"}')
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
