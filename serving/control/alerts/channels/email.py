"""A mail of text and HTML. Pure: whoever delivers hands it to the mail server."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from serving.control.alerts.channels.message import Language, Message, message_of, shortened
from serving.control.alerts.notify import Notification

MAX_SUBJECT_CHARS = 200
_RED, _GREEN = "#b3261e", "#1e7b45"


class Mail(NamedTuple):
    to: tuple[str, ...]
    subject: str
    text: str
    html: str
    message_id: str
    """The same in every attempt: servers and readers show a repeated one once."""


def render(notification: Notification, to: tuple[str, ...], language: Language, host: str) -> Mail:
    """`host` is the right side of the message's id."""
    message = message_of(notification, language)
    subject = shortened(" ".join(message.title.split()), MAX_SUBJECT_CHARS)
    return Mail(to, subject, _text(message), _html(message), f"<{notification.id}@{host}>")


def _text(message: Message) -> str:
    return "\n\n".join([message.title, *message.lines()]) + "\n"


def _html(message: Message) -> str:
    colour = _RED if message.is_firing else _GREEN
    paragraphs = [f"<p>{escape(each).replace(chr(10), '<br>')}</p>" for each in message.lines()]
    return (
        f'<!doctype html><html lang="{message.language}"><body style="font-family:sans-serif;line-height:1.5">'
        f'<h2 style="color:{colour};font-size:18px">{escape(message.title)}</h2>{"".join(paragraphs)}'
        "</body></html>"
    )
