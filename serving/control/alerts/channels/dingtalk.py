"""A custom robot of DingTalk: Markdown, signed in its address.

The signature is base64 of an HMAC-SHA256 by the secret over `timestamp + "\\n" + secret`, with the timestamp in
milliseconds, both as parameters of the address (DingTalk open platform, "custom robot security settings").
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from urllib.parse import urlencode

from serving.control.alerts.channels.markdown import escaped, untagged
from serving.control.alerts.channels.message import Language, Message, fitted, message_of
from serving.control.alerts.channels.post import Post, Said, json_post, said
from serving.control.alerts.notify import Notification

MAX_TEXT_BYTES = 18_000
"""They take 20,000 of body."""
_BUSY = (-1, 130101, 410100)


def render(notification: Notification, url: str, language: Language, secret: str, now_s: float) -> Post:
    """`secret` is empty for a robot that asks for no signature. It is good for an hour."""
    message = fitted(
        message_of(notification, language), lambda said: len(_text(said).encode()), MAX_TEXT_BYTES
    )
    body = {
        "msgtype": "markdown",
        "markdown": {"title": untagged(message.title), "text": _text(message)},
        "at": {"isAtAll": False},
    }
    return json_post(signed(url, secret, int(now_s * 1000)) if secret else url, body)


def signed(url: str, secret: str, timestamp_ms: int) -> str:
    mark = hmac.digest(secret.encode(), f"{timestamp_ms}\n{secret}".encode(), "sha256")
    parameters = urlencode({"timestamp": timestamp_ms, "sign": b64encode(mark).decode()})
    return f"{url}{'&' if '?' in url else '?'}{parameters}"


def answer(body: bytes) -> Said:
    return said(body, "errcode", "errmsg", _BUSY)


def _text(message: Message) -> str:
    paragraphs = ["  \n".join(escaped(line) for line in each.split("\n")) for each in message.lines()]
    return "\n\n".join([f"### {escaped(message.title)}", *paragraphs])
