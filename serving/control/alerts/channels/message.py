"""What a notification says to people, in their language and within the bytes a receiver takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from serving.control.alerts.notify import ALERT_NAME, Notification, Standing

Language = Literal["en", "zh-hans"]
MAX_LABEL_CHARS = 120
MAX_SUMMARY_CHARS = 500

_WORDS: dict[Language, dict[str, str]] = {
    "en": {
        "firing": "Firing",
        "resolved": "Resolved",
        "repeated": "still",
        "since": "since {at} UTC",
        "until": "{since} to {until} UTC",
        "more": "and {count} more",
        "value": "value {value}",
        "critical": "critical",
        "warning": "warning",
        "info": "info",
        "test": "A test: alerts of this channel arrive here.",
    },
    "zh-hans": {
        "firing": "告警",
        "resolved": "已恢复",
        "repeated": "仍在",
        "since": "自 {at} UTC",
        "until": "{since} 至 {until} UTC",
        "more": "另有 {count} 条",
        "value": "当前值 {value}",
        "critical": "严重",
        "warning": "警告",
        "info": "提示",
        "test": "测试消息：此渠道的告警将发送到这里。",
    },
}


class Message(NamedTuple):
    """A title, and a paragraph for each alert; `left_out` alerts are only counted."""

    title: str
    paragraphs: tuple[str, ...]
    is_firing: bool
    left_out: int
    language: Language

    @property
    def rest(self) -> str:
        """A sentence about those left out, or nothing."""
        return say(self.language, "more", count=self.left_out) if self.left_out else ""

    def lines(self) -> list[str]:
        return [*self.paragraphs, *([self.rest] if self.left_out else [])]


def say(language: Language, word: str, **values: object) -> str:
    return _WORDS[language][word].format(**values)


def message_of(notification: Notification, language: Language) -> Message:
    firing = [each for each in notification.alerts if each.alert.state == "firing"]
    paragraphs = tuple(_paragraph(each, language) for each in notification.alerts)
    title = _title(notification, len(firing), language)
    return Message(title, paragraphs, bool(firing), notification.left_out, language)


def fitted(message: Message, measure: Callable[[Message], int], most: int) -> Message:
    """With as many alerts, from the first, as `measure` finds to be at most `most`; the others are counted.

    Where not even one fits, none is said: the title tells how many there are.
    """
    low, high = 0, len(message.paragraphs)
    while low < high:
        middle = (low + high + 1) // 2
        if measure(_first(message, middle)) <= most:
            low = middle
        else:
            high = middle - 1
    return _first(message, low)


def shortened(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1] + "…"


def moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _first(message: Message, count: int) -> Message:
    dropped = len(message.paragraphs) - count
    return message._replace(paragraphs=message.paragraphs[:count], left_out=message.left_out + dropped)


def _title(notification: Notification, firing: int, language: Language) -> str:
    word = say(language, "firing" if firing else "resolved")
    count = (firing or len(notification.alerts)) + notification.left_out
    names = list(dict.fromkeys(each.rule_name for each in notification.alerts))
    what = ", ".join(shortened(name, MAX_LABEL_CHARS) for name in names[:3]) + (
        " …" if len(names) > 3 else ""
    )
    return f"[{word}{f' · {count}' if count > 1 else ''}] {what}"


def _paragraph(standing: Standing, language: Language) -> str:
    word = say(language, "firing" if standing.alert.state == "firing" else "resolved")
    head = f"{word} · {say(language, standing.severity)} · {shortened(standing.rule_name, MAX_LABEL_CHARS)}"
    return "\n".join(
        filter(None, (head, shortened(standing.summary, MAX_SUMMARY_CHARS), _facts(standing, language)))
    )


def _facts(standing: Standing, language: Language) -> str:
    hidden = (ALERT_NAME, "severity")
    labels = [
        f"{name}={shortened(value, MAX_LABEL_CHARS)}"
        for name, value in sorted(standing.labels.items())
        if name not in hidden and value
    ]
    return " · ".join([*labels, *_value(standing, language), _when(standing, language)])


def _value(standing: Standing, language: Language) -> Sequence[str]:
    value = standing.alert.value
    return [] if value is None else [say(language, "value", value=f"{value:.6g}")]


def _when(standing: Standing, language: Language) -> str:
    since = moment(standing.alert.fired_at or standing.alert.since)
    if standing.alert.state == "firing" or standing.alert.resolved_at is None:
        return say(language, "since", at=since)
    return say(language, "until", since=since, until=moment(standing.alert.resolved_at))
