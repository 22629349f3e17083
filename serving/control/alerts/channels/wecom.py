"""A group robot of WeCom: Markdown of at most 4,096 bytes, whose address is the secret."""

from __future__ import annotations

from serving.control.alerts.channels.markdown import escaped
from serving.control.alerts.channels.message import Language, Message, fitted, message_of
from serving.control.alerts.channels.post import Post, Said, json_post, said
from serving.control.alerts.notify import Notification

MAX_CONTENT_BYTES = 4096
_BUSY = (-1, 45009)


def render(notification: Notification, url: str, language: Language) -> Post:
    message = fitted(
        message_of(notification, language), lambda said: len(_content(said).encode()), MAX_CONTENT_BYTES
    )
    return json_post(url, {"msgtype": "markdown", "markdown": {"content": _content(message)}})


def answer(body: bytes) -> Said:
    return said(body, "errcode", "errmsg", _BUSY)


def _content(message: Message) -> str:
    colour = "warning" if message.is_firing else "info"
    title = f'<font color="{colour}">{escaped(message.title)}</font>'
    return "\n\n".join([title, *(escaped(line) for line in message.lines())])
