"""Gateways that are processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

from tests.serving.gateway.harness import PEPPER, Harness
from tests.serving.gateway.test_starting_and_stopping import environment


async def write_configuration(harness: Harness, state_dir: Path, count: int) -> None:
    """What so many start with: the last good configuration of a gateway like them."""
    await harness.start()
    await harness.until_ready()
    await harness.stop()
    for name in ("gateway", *(f"gateway-{index}" for index in range(1, count))):
        (state_dir / name).mkdir(mode=0o700)
        shutil.copy(harness.directory / "last-good.json", state_dir / name)


@contextlib.asynccontextmanager
async def gateway_process(
    state_dir: Path, port: str, index: int, count: int, **variables: str
) -> AsyncIterator[Process]:
    """One of `count`, from when it listens on."""
    own = {
        "TIDEGATE_GATEWAY_PORT": port,
        "TIDEGATE_GATEWAY_INDEX": str(index),
        "TIDEGATE_GATEWAY_COUNT": str(count),
        "TIDEGATE_KEY_PEPPER": PEPPER.decode(),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "serving.gateway",
        env=environment(state_dir, **own, **variables),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            async for line in process.stdout:
                if b"gateway.serving" in line:
                    break
        rest = asyncio.create_task(process.stdout.read())
        yield process
        rest.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
