"""Which processes make up the platform on one machine, and in which order they stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from console.embedded.identity import ourselves
from console.embedded.owned import Ladder, OwnedProcess
from console.processes.environment import SECRET_NAMES
from console.processes.options import PROJECT_DIR, UpOptions

MANAGE = str(PROJECT_DIR / "manage.py")
_DRAINING: Ladder = ((signal.SIGTERM, 40.0),)
_QUICK: Ladder = ((signal.SIGTERM, 10.0),)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to keep running. Lower `stop_stage` stops earlier; equal ones stop together."""

    name: str
    arguments: tuple[str, ...]
    stop_stage: int
    ladder: Ladder = _QUICK
    address: tuple[str, int] | None = None
    """Where it listens once it is ready; None when being alive is all there is to see."""
    environment: dict[str, str] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    """Secrets of the installation that it has no use for, and so does not get."""

    def command(self) -> list[str]:
        """SIGKILL on the parent's death: nobody would be left to escalate."""
        return ourselves().wrap([sys.executable, *self.arguments], signal.SIGKILL)


def processes_of(options: UpOptions) -> list[ProcessSpec]:
    """Stop order: gateways drain while workers still answer them; then the agent drains its workers and
    sends its last reports; the controller, which reads those, and the tasks follow, and the databases last.
    """
    console = (options.console_host, options.console_port)
    return [
        *_gateways(options),
        ProcessSpec("agent", ("-m", "serving.agent"), stop_stage=2, ladder=_DRAINING, withheld=SECRET_NAMES),
        ProcessSpec("controller", (MANAGE, "controller"), stop_stage=3),
        ProcessSpec("console", ("-m", "console.processes.web"), stop_stage=3, address=console),
        ProcessSpec("tasks", ("-m", "console.processes.tasks"), stop_stage=3),
    ]


def _gateways(options: UpOptions) -> Sequence[ProcessSpec]:
    address = (options.gateway_host, options.gateway_port)
    return [
        ProcessSpec(
            "gateway" if options.gateways == 1 else f"gateway-{index}",
            ("-m", "serving.gateway"),
            stop_stage=1,
            ladder=_DRAINING,
            address=address,
            withheld=("TIDEGATE_SECRET_KEY", "TIDEGATE_AUDIT_KEY"),
            environment={
                "TIDEGATE_GATEWAY_INDEX": str(index),
                "TIDEGATE_GATEWAY_COUNT": str(options.gateways),
            },
        )
        for index in range(options.gateways)
    ]


def environment_of(spec: ProcessSpec, platform: Mapping[str, str]) -> dict[str, str]:
    """What the process is started with: the platform's environment without what is withheld, and its own."""
    return {name: value for name, value in platform.items() if name not in spec.withheld} | spec.environment


def owned(spec: ProcessSpec, options: UpOptions) -> OwnedProcess:
    return OwnedProcess(
        spec.name, spec.command(), options.state_dir / "log" / f"{spec.name}.log", spec.ladder
    )
