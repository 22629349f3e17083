from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from serving.worker.testing import EchoWorker
from tests.serving.gateway.harness import Harness, gateway


@pytest.fixture
async def echo() -> AsyncIterator[Harness]:
    """A gateway that serves the model `echo` from one real worker loop."""
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        async with EchoWorker(harness.address(), replica_id="rep_0"):
            await harness.until_ready()
            yield harness
