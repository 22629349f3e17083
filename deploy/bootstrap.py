"""Prepares a checkout: virtual environment, pinned requirements, front-end packages.

    python3 deploy/bootstrap.py [--dev]

Standard library only, and readable by any Python 3: it looks for one that Tidegate runs on. What is done
already is skipped, by a hash of the files that decide it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENDOR = ROOT / "static" / "vendor"
RUNTIME, DEV = "requirements.txt", "requirements-dev.txt"
EXTRAS = ["requirements-bench.txt", "requirements-onnx.txt", "requirements-otel.txt"]
OLDEST, NEWEST = (3, 11), (3, 13)
CANDIDATES = ("python3", "python3.13", "python3.12", "python3.11")

# What pip and npm print → what the person should do. First match wins.
CAUSES = (
    (r"No space left on device|ENOSPC", "the disk is full: free a few gigabytes and run this again"),
    (
        r"Permission denied|EACCES|Read-only file system|EROFS",
        "no write access here: check the owner of {root}",
    ),
    (
        r"NewConnectionError|name resolution|Network is unreachable|ConnectTimeout|ReadTimeout|Connection refused"
        r"|ProxyError|SSLError|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|No matching distribution",
        "the package index cannot be reached: check the network, or PIP_INDEX_URL and the proxy settings",
    ),
)


class Failed(Exception):
    """A step that cannot go on; the text says what failed and what to do."""


def main() -> int:
    is_dev = "--dev" in sys.argv[1:]
    try:
        require_write_access()
        ensure_venv()
        install(DEV if is_dev else RUNTIME)
        fetch_front_end()
    except Failed as error:
        print(f"\nset-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def require_write_access() -> None:
    if not os.access(str(ROOT), os.W_OK):
        raise Failed(f"no write access to {ROOT}: copy the checkout to a directory of your own")


# ------------------------------------------------------------------------ virtual environment


def ensure_venv() -> None:
    """A venv of a Python in range; a broken or outdated one is built anew."""
    if is_usable(venv_python()):
        return
    python = find_python()
    say(f"creating .venv with {python}")
    shutil.rmtree(str(VENV), ignore_errors=True)
    if run([python, "-m", "venv", str(VENV)], quiet=True)[0] != 0:
        create_without_ensurepip(python)


def create_without_ensurepip(python: str) -> None:
    """Debian ships Python without ensurepip: use its pip or virtualenv when there is one."""
    shutil.rmtree(str(VENV), ignore_errors=True)
    code, _ = run([python, "-m", "venv", "--without-pip", str(VENV)], quiet=True)
    if code == 0:
        install_pip = [python, "-m", "pip", "--python", str(venv_python()), "install", "--quiet", "pip"]
        if run(install_pip, quiet=True)[0] == 0:
            return
    shutil.rmtree(str(VENV), ignore_errors=True)
    code, printed = run([python, "-m", "virtualenv", "--quiet", str(VENV)], quiet=True)
    if code != 0:
        raise Failed(
            cause_of(printed)
            or "this Python cannot create virtual environments: install its venv module "
            "(Debian, Ubuntu: apt install python3-venv) and run this again"
        )


def find_python() -> str:
    found = []
    for name in (sys.executable, *CANDIDATES):
        path = shutil.which(name) if name else None
        version = version_of(path) if path else None
        if version and OLDEST <= version <= NEWEST:
            return str(path)
        if version:
            found.append("{} is {}.{}".format(name, *version))
    raise Failed(
        "Tidegate needs Python {}.{} to {}.{}; found only: {}. Install one and run this again.".format(
            *(OLDEST + NEWEST + (", ".join(found) or "none",))
        )
    )


def version_of(python: str) -> tuple | None:
    """(3, 11), or None when it does not run (a version manager's empty shim)."""
    code, printed = run([python, "-c", "import sys; print(*sys.version_info[:2])"], quiet=True)
    parts = printed.split()
    return tuple(map(int, parts[:2])) if code == 0 and len(parts) >= 2 and parts[0].isdigit() else None


def is_usable(python: Path) -> bool:
    if not python.exists() or run([str(python), "-m", "pip", "--version"], quiet=True)[0] != 0:
        return False
    version = version_of(str(python))
    return version is not None and OLDEST <= version <= NEWEST


def venv_python() -> Path:
    return VENV / "bin" / "python"


# ------------------------------------------------------------------------ packages


def install(requirements: str) -> None:
    """The development list contains the runtime list, so its stamp serves both."""
    if any(is_current(VENV / f"installed-{name}", requirements_digest()) for name in (requirements, DEV)):
        return
    say(
        f"installing {requirements} (the first time downloads about 0.5 GB, several with a CUDA build of torch)"
    )
    started = time.time()
    command = [str(venv_python()), "-m", "pip", "install", "--disable-pip-version-check", "-r", requirements]
    code, printed = run(command)
    if code != 0:
        raise Failed("{}; see pip's message above".format(cause_of(printed) or "pip install failed"))
    (VENV / f"installed-{requirements}").write_text(requirements_digest())
    say(f"requirements installed ({time.time() - started:.0f} s)")


def requirements_digest() -> str:
    return digest([RUNTIME, DEV, *EXTRAS])


def fetch_front_end() -> None:
    key = digest(["package-lock.json", ".npmrc", "deploy/frontend.py"])
    stamp = VENDOR / ".installed"
    if is_current(stamp, key):
        return
    say("fetching the front-end packages")
    code, printed = run([str(venv_python()), str(ROOT / "deploy" / "frontend.py")])
    if code != 0:
        raise Failed("{}; see the message above".format(cause_of(printed) or "npm ci failed"))
    stamp.write_text(key)


def digest(names: list) -> str:
    total = hashlib.sha256()
    for name in names:
        total.update((ROOT / name).read_bytes())
    return total.hexdigest()


def is_current(stamp: Path, key: str) -> bool:
    return stamp.exists() and stamp.read_text() == key


# ------------------------------------------------------------------------ running


def run(command: list, quiet: bool = False) -> tuple:
    """(exit code, what it printed); not quiet: shown as it comes, errors kept for the diagnosis."""
    try:
        process = subprocess.Popen(
            command,
            cwd=str(ROOT),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.STDOUT if quiet else subprocess.PIPE,
        )
    except OSError as error:
        return 127, str(error)
    printed = []
    for line in (process.stdout if quiet else process.stderr) or ():
        printed.append(line.decode(errors="replace"))
        if not quiet:
            sys.stderr.write(printed[-1])
    return process.wait(), "".join(printed)


def cause_of(printed: str) -> str:
    for pattern, advice in CAUSES:
        if re.search(pattern, printed):
            return advice.format(root=ROOT)
    return ""


def say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
