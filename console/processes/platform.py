"""The whole platform of one machine as one object: `manage.py up` and `manage.py demo` are thin around it.

It never touches Django: everything that needs the database runs as a child with the environment that
`environment` holds, so nothing depends on the settings the parent happened to be started with.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from types import TracebackType
from typing import Self

from console.embedded.directories import private_directory
from console.embedded.errors import ServiceError
from console.embedded.identity import ourselves
from console.embedded.lock import DirectoryLock
from console.embedded.services import EmbeddedServices, Service
from console.processes import beside
from console.processes.environment import platform_environment
from console.processes.fleet import MANAGE, ProcessSpec, environment_of, owned, processes_of
from console.processes.options import UpOptions
from console.processes.ports import require_free
from console.processes.supervised import Supervised, describe_exit
from serving.rotation import rotate_when_large

STEP_S = 0.1
ROTATE_EVERY_S = 5.0
HOPELESS_RESTARTS = 4

Say = Callable[[str], None]


def _print(text: str) -> None:
    print(f"  {text}", flush=True)


class Platform:
    """`with Platform(options) as platform:` starts everything and stops everything.

    Use it from the main thread: the kernel ties the children to the thread that started them, and
    signals arrive there. SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt` inside the block.
    Entering raises `ServiceError` with a text for a person when something cannot start.
    """

    def __init__(
        self, options: UpOptions, say: Say = _print, processes: Sequence[ProcessSpec] | None = None
    ) -> None:
        self.options = options
        self.environment: dict[str, str] = {}
        """What every process of the platform runs with; complete once the services run."""
        self.supervised: dict[str, Supervised] = {}
        self._say = say
        self._specs = sorted(processes or processes_of(options), key=lambda spec: spec.stop_stage)
        self._services = EmbeddedServices(options.state_dir)
        self._lock = DirectoryLock(options.state_dir / beside.LOCK)
        self._rotate_at = 0.0

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup means it
            signal.signal(signal.SIGHUP, _interrupt)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop()

    # -------------------------------------------------------------------- starting

    def start(self) -> None:
        """Services, migrations, then all processes at once; returns when they are spawned."""
        private_directory(self.options.state_dir)
        self._lock.acquire()
        beside.withdraw(self.options.state_dir)  # a killed run could not: scripts would use its dead keys
        self._require_ports()
        self._services.start(self._say)
        self.environment = platform_environment(self.options, self._services.urls())
        for service in self._services.services:
            self._supervise_service(service)
        self._say("migrating the database")
        self.manage("migrate", "--no-input", "--verbosity", "0")
        beside.announce(self.options.state_dir, self.environment)
        for spec in self._specs:
            self._supervise(spec)
        self._say(f"starting {', '.join(spec.name for spec in self._specs)}")

    def manage(self, *arguments: str) -> None:
        """Run a management command with the platform's environment; its output is this terminal's.

        Raises `ServiceError` when it fails.
        """
        command = ourselves().wrap([sys.executable, MANAGE, *arguments], signal.SIGKILL)
        done = subprocess.run(command, env=self.environment, check=False)
        if done.returncode != 0:
            raise ServiceError(f"manage.py {arguments[0]} {describe_exit(done.returncode)}; see above")

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Until console and gateways listen. Raises `ServiceError` with the log of what does not come up."""
        waiting = [spec for spec in self._specs if spec.address]
        started = time.monotonic()
        while waiting:
            self.step()
            for spec in [spec for spec in waiting if self._is_listening(spec)]:
                waiting.remove(spec)
                self._say(f"{spec.name} is ready on {_url(spec)} ({time.monotonic() - started:.1f} s)")
            self._require_hope(waiting, is_late=time.monotonic() > started + timeout_s)
            time.sleep(STEP_S / 2)

    def _require_hope(self, waiting: Sequence[ProcessSpec], is_late: bool) -> None:
        """Nobody waits two minutes for a process that dies at every start."""
        for spec in self._specs:
            process = self.supervised[spec.name]
            if process.restarts >= HOPELESS_RESTARTS or (is_late and spec in waiting):
                tail = process.process.log_tail()
                raise ServiceError(
                    f"{spec.name} does not come up. Its log, {process.log_path}, ends with:\n{tail}"
                )

    # -------------------------------------------------------------------- running

    def run_until_signal(self) -> None:
        """Keep everything running until Ctrl-C, SIGTERM or SIGHUP."""
        try:
            while True:
                self.step()
                time.sleep(STEP_S)
        except KeyboardInterrupt:
            self._say("stopping")

    def step(self) -> None:
        """Restart what died and is due; keep the logs bounded."""
        now = time.monotonic()
        for supervised in self.supervised.values():
            supervised.step(now)
        if now >= self._rotate_at:
            self._rotate_at = now + ROTATE_EVERY_S
            for supervised in self.supervised.values():
                rotate_when_large(supervised.log_path)

    # -------------------------------------------------------------------- stopping

    def stop(self) -> None:
        """In order and bounded; a second Ctrl-C kills what is left. Safe to call at any time, twice too."""
        try:
            for _, stage in groupby(self._specs, key=lambda spec: spec.stop_stage):
                self._stop_together([spec.name for spec in stage])
            self._services.stop()
        except KeyboardInterrupt:
            self._kill_everything()
            self._services.stop()
        finally:
            self.supervised.clear()
            if self._lock.is_ours:
                beside.withdraw(self.options.state_dir)
            self._lock.release()

    def _stop_together(self, names: Sequence[str]) -> None:
        processes = [self.supervised[name].process for name in names if name in self.supervised]
        for process in processes:
            process.ask_to_stop()
        for process in processes:
            process.stop()

    def _kill_everything(self) -> None:
        self._say("killing what is left")
        for supervised in self.supervised.values():
            supervised.process.kill()

    # -------------------------------------------------------------------- parts

    def _require_ports(self) -> None:
        options = self.options
        if options.console_port == options.gateway_port:
            raise ServiceError(
                f"console and gateway cannot both listen on port {options.console_port}. "
                "Choose another with --console-port or --gateway-port."
            )
        require_free(options.console_host, options.console_port, "--console-port", "TIDEGATE_CONSOLE_PORT")
        require_free(options.gateway_host, options.gateway_port, "--gateway-port", "TIDEGATE_GATEWAY_PORT")

    def _supervise(self, spec: ProcessSpec) -> None:
        process = owned(spec, self.options)
        environment = environment_of(spec, self.environment)
        cores = self.options.cpu_cores.get(spec.name.split("-")[0], ())
        supervised = Supervised(process, lambda: process.start(environment, cores), self._say)
        self.supervised[spec.name] = supervised
        supervised.start()

    def _supervise_service(self, service: Service) -> None:
        self.supervised[service.name] = Supervised(service.process, service.start, self._say)
        self.supervised[service.name].adopt()

    def _is_listening(self, spec: ProcessSpec) -> bool:
        assert spec.address is not None
        if not self.supervised[spec.name].process.is_alive:
            return False
        try:
            with socket.create_connection(spec.address, timeout=1.0):
                return True
        except OSError:
            return False


@contextmanager
def failures_for_people() -> Iterator[None]:
    """Turn what cannot be helped into one clear message and exit code 1; an interrupt into 130."""
    try:
        yield
    except ServiceError as error:
        print(f"\n{error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _url(spec: ProcessSpec) -> str:
    assert spec.address is not None
    return f"http://{spec.address[0]}:{spec.address[1]}"


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
