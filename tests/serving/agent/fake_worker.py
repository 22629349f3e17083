"""A worker that only speaks the control channel; what it does is told by its version's options."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path


def main() -> None:
    sys.path.insert(0, os.getcwd())
    from serving.parenting import die_with_parent

    die_with_parent()
    spec = json.loads(Path(sys.argv[sys.argv.index("--spec") + 1]).read_text())
    options = spec["version"].get("options", {})
    control = socket.socket(fileno=int(os.environ["TIDEGATE_CONTROL_FD"]))
    if "--validate" in sys.argv:
        validate(control, spec, options)
        return
    if "--tune" in sys.argv:
        tune(control, spec, options)
        return
    if options.get("crash"):
        print("Traceback: the artifact has no weights", flush=True)
        sys.exit(3)
    say(control, state="loading")
    say(control, state="ready", memory_bytes=1234, load_s=0.5)
    if options.get("out_of_memory"):
        say(control, state="ready", event="batch.out_of_memory", numbers={"cap_tokens": 200})
    if options.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    for line in control.makefile("rb"):
        if json.loads(line)["do"] == "drain":
            say(control, state="draining")
            sys.exit(0)


def validate(control: socket.socket, spec: dict, options: dict) -> None:
    if options.get("hang"):
        time.sleep(600)
    if options.get("hog_mib"):
        ballast = bytearray(os.urandom(1 << 20) * int(options["hog_mib"]))
        time.sleep(600)
        print(len(ballast))
    if options.get("crash"):
        print("ValueError: unsupported architecture", flush=True)
        sys.exit(1)
    body = {"type": "validation", "version_id": spec["version"]["id"], "attempt": 1, "ok": True}
    control.sendall(json.dumps(body).encode() + b"\n")


def tune(control: socket.socket, spec: dict, options: dict) -> None:
    if options.get("hang"):
        time.sleep(600)
    if options.get("crash"):
        print("ValueError: unsupported architecture", flush=True)
        sys.exit(1)
    say(control, state="loading")
    index, rate = spec["tuning"]["index"], {"1": 10.0 * spec["threads"]}
    say(control, index=index, ok=not options.get("refuse"), reason=options.get("refuse", ""), rows_per_s=rate)


def say(control: socket.socket, **fields: object) -> None:
    control.sendall(json.dumps(fields).encode() + b"\n")


main()
