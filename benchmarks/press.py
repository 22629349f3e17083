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

CHAT_PER_S = 10.0
ARCHIVE_PER_S = 60.0
"""About what one CPU core embeds of the archive's passages beside the chat."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--announcement", type=Path, default=Path("var/demo.json"))
    arguments = parser.parse_args()
    if not arguments.announcement.exists():
        parser.error(f"{arguments.announcement} is not there: start `make demo` first")
    facts = json.loads(arguments.announcement.read_text())
    keys = {slug: tenant["api_key"] for slug, tenant in facts["tenants"].items()}
    outcomes = asyncio.run(
        load.run(
            facts["gateway"],
            keys,
            chat_requests=round(CHAT_PER_S * arguments.seconds),
            archive_requests=round(ARCHIVE_PER_S * arguments.seconds),
        )
    )
    print(report.table(outcomes, {"acme-chat": 50.0, "acme-archive": 10_000.0}))


if __name__ == "__main__":
    main()
