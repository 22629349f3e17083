"""A websocket against the ASGI application, without a server."""

from __future__ import annotations

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator

WAIT_S = 20
Headers = list[tuple[bytes, bytes]]


class Socket(ApplicationCommunicator):
    """channels.testing has one too, but importing that package asks for a server we do not use."""

    def __init__(self, application: Any, path: str, query: str, headers: Headers) -> None:
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
        }
        super().__init__(application, scope)

    async def connect(self) -> bool:
        await self.send_input({"type": "websocket.connect"})
        return (await self.receive_output(WAIT_S))["type"] == "websocket.accept"

    async def next(self) -> dict[str, Any]:
        """The next message of the server."""
        output = await self.receive_output(WAIT_S)
        assert output["type"] == "websocket.send", output
        return json.loads(output["text"])

    async def say(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def close_code(self) -> int:
        """The code the server closes with; what it says before is skipped."""
        while True:
            output = await self.receive_output(WAIT_S)
            if output["type"] == "websocket.close":
                return int(output.get("code", 1000))

    async def leave(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(WAIT_S)
