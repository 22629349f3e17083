"""Starts embedded services in a process of its own, prints where they are as one JSON line, and waits."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from console.embedded.errors import ServiceError
from console.embedded.services import EmbeddedServices


def main() -> int:
    services = EmbeddedServices(Path(sys.argv[1]), durable="--volatile" not in sys.argv, environ={})
    try:
        services.start()
    except ServiceError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    pids = {service.name: service.process.pid for service in services.services}
    print(json.dumps({"urls": services.urls(), "pids": pids}), flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        services.stop()
    return 0


sys.exit(main())
