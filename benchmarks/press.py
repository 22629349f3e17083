"""Both of the demo's tenants at once against a running demo: `python -m benchmarks.press [--seconds 30]`.

Not a measurement: something to look at in the console while it runs. Reads addresses and keys from the
demo's announcement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from console.demo import load, report

ENOUGH = 1_000_000
"""Requests the archive never gets through: its time ends the run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--announcement", type=Path, default=Path("var/demo.json"))
    arguments = parser.parse_args()
    if not arguments.announcement.exists():
        parser.error(f"{arguments.announcement} is not there: start `make demo` first")
    facts = json.loads(arguments.announcement.read_text())
    keys = {slug: tenant["api_key"] for slug, tenant in facts["tenants"].items()}
    print(f"both tenants send for {arguments.seconds:g} s; watch {facts['console']}", flush=True)
    outcomes = asyncio.run(
        load.run(
            facts["gateway"],
            keys,
            chat_requests=round(load.CHAT_PER_S * arguments.seconds),
            archive_requests=ENOUGH,
            archive_seconds=arguments.seconds,
        )
    )
    targets_ms = {slug: tenant["target_p95_ms"] for slug, tenant in facts["tenants"].items()}
    print(report.table(outcomes, targets_ms))


if __name__ == "__main__":
    main()
