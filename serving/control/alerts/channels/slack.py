"""An incoming webhook of Slack, or of what takes the same (Mattermost, Rocket.Chat, Discord's `/slack`).

Attachments rather than blocks: the compatible ones know no blocks.
"""

from __future__ import annotations

from serving.control.alerts.channels.message import Language, Message, fitted, message_of
from serving.control.alerts.channels.post import Post, json_post
from serving.control.alerts.notify import Notification

MAX_TEXT_CHARS = 3000
_RED, _GREEN = "#d33a2c", "#2e8b57"


def render(notification: Notification, url: str, language: Language) -> Post:
    message = fitted(message_of(notification, language), lambda said: len(_text(said)), MAX_TEXT_CHARS)
    attachment = {
        "fallback": escaped(message.title),
        "color": _RED if message.is_firing else _GREEN,
        "text": _text(message),
        "mrkdwn_in": [],
        "ts": int(notification.at),
    }
    return json_post(url, {"text": escaped(message.title), "attachments": [attachment]})


def escaped(text: str) -> str:
    """The three characters that begin mentions, links and entities there, and the `@` of the others' mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "＠")


def _text(message: Message) -> str:
    return escaped("\n\n".join(message.lines()))
