"""No process outlives the one that supervises it, even when that one is killed with SIGKILL.

A supervisor starts its child with `adoption_environment()`; the child calls `die_with_parent()` first
thing in its main. A process started by hand or by systemd has no such variable and lives on its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "TIDEGATE_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def adoption_environment() -> dict[str, str]:
    """Variables to add to a child's environment so that it dies with this process.

    The kernel watches the *thread* that started the child: start children from a thread that lives as
    long as the process, such as the main one.
    """
    return {PARENT_VARIABLE: str(os.getpid())}


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its supervisor dies; does nothing when it has none.

    SIGKILL, not SIGTERM: nobody is left to escalate when a hung child ignores a polite signal. Exits at
    once when the supervisor died before the request was made. The variable is removed, so that
    grandchildren are not tied to a process that is not their parent.
    """
    expected = os.environ.pop(PARENT_VARIABLE, "")
    if not expected or not sys.platform.startswith("linux"):
        return
    set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != int(expected):
        os._exit(1)


def set_parent_death_signal(signal_number: int) -> None:
    """Linux `prctl(PR_SET_PDEATHSIG)`: deliver the signal to this process when its parent thread ends.

    Raises `OSError` when the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
