"""A custom robot of Feishu or Lark: a card, signed in its body.

The signature is base64 of an HMAC-SHA256 over nothing, whose key is `timestamp + "\\n" + secret`
(Feishu open platform, "custom bot usage guide"). Text is plain, so that a label mentions nobody.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import Any

import msgspec

from serving.control.alerts.channels.message import Language, Message, fitted, message_of
from serving.control.alerts.channels.post import Post, Said, json_post, said
from serving.control.alerts.notify import Notification

MAX_BODY_BYTES = 18_000
"""They take 20 KB; the rest is for the signature."""
_BUSY = (11232, 9499)


def render(notification: Notification, url: str, language: Language, secret: str, now_s: float) -> Post:
    """`secret` is empty for a robot that asks for no signature. It is good for an hour."""
    message = fitted(
        message_of(notification, language), lambda said: len(msgspec.json.encode(_card(said))), MAX_BODY_BYTES
    )
    body = {"msg_type": "interactive", "card": _card(message)}
    if secret:
        at = str(int(now_s))
        body = {"timestamp": at, "sign": sign(at, secret), **body}
    return json_post(url, body)


def sign(timestamp: str, secret: str) -> str:
    return b64encode(hmac.digest(f"{timestamp}\n{secret}".encode(), b"", "sha256")).decode()


def answer(body: bytes) -> Said:
    return said(body, "code", "msg", _BUSY)


def _card(message: Message) -> dict[str, Any]:
    return {
        "config": {"wide_screen_mode": True},
        "header": {
            "title": {"tag": "plain_text", "content": message.title},
            "template": "red" if message.is_firing else "green",
        },
        "elements": [
            {"tag": "div", "text": {"tag": "plain_text", "content": line}} for line in message.lines()
        ],
    }
