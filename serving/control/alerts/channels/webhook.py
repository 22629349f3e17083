"""A signed webhook with the body that Alertmanager's receivers know (version 4).

Signed as Standard Webhooks 1.0 asks: `webhook-id` is the notification's, the same in every attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from serving.control.alerts.channels.post import Post
from serving.control.alerts.notify import ALERT_NAME, Notification, Standing
from tenants.trail.webhooks.signature import headers

NOT_OVER = "0001-01-01T00:00:00Z"
MAX_BODY_BYTES = 256 * 1024
_REASONS = {
    "fired": "new alerts",
    "resolved": "resolved",
    "changed": "changed",
    "repeated": "repeat interval",
}


def render(
    notification: Notification, url: str, receiver: str, console_url: str, keys: Iterable[bytes], now_s: float
) -> Post:
    """`receiver` is the channel's name, `console_url` where people look, `keys` the secrets, newest first.

    Each attempt is signed anew, since receivers refuse old signatures.
    """
    body = _fitting(notification, receiver, console_url)
    return Post(url, body, headers(notification.id, datetime.fromtimestamp(now_s, UTC), body, keys))


def body_of(notification: Notification, receiver: str, console_url: str, count: int) -> dict[str, Any]:
    """With the first `count` alerts; the others are in `truncatedAlerts`."""
    alerts = [_alert(each, console_url) for each in notification.alerts[:count]]
    is_firing = any(each.alert.state == "firing" for each in notification.alerts)
    return {
        "version": "4",
        "groupKey": notification.group_key,
        "truncatedAlerts": notification.left_out + len(notification.alerts) - count,
        "status": "firing" if is_firing else "resolved",
        "receiver": receiver,
        "groupLabels": _named(notification.group_labels),
        "commonLabels": _common([each["labels"] for each in alerts]),
        "commonAnnotations": _common([each["annotations"] for each in alerts]),
        "externalURL": console_url,
        "notification_reason": _REASONS[notification.reason],
        "alerts": alerts,
    }


def _fitting(notification: Notification, receiver: str, console_url: str) -> bytes:
    count = len(notification.alerts)
    while True:
        body = msgspec.json.encode(body_of(notification, receiver, console_url, count))
        if len(body) <= MAX_BODY_BYTES or count == 0:
            return body
        count //= 2


def _alert(standing: Standing, console_url: str) -> dict[str, Any]:
    alert = standing.alert
    is_over = alert.state != "firing" and alert.resolved_at is not None
    return {
        "status": "resolved" if is_over else "firing",
        "labels": _named(standing.labels),
        "annotations": {
            "summary": standing.summary or standing.rule_name,
            "description": _description(standing),
        },
        "startsAt": _rfc3339(alert.fired_at or alert.since),
        "endsAt": _rfc3339(alert.resolved_at) if is_over and alert.resolved_at is not None else NOT_OVER,
        "generatorURL": f"{console_url}/alerts/{alert.fingerprint}" if console_url else "",
        "fingerprint": alert.fingerprint,
    }


def _description(standing: Standing) -> str:
    value = standing.alert.value
    return "" if value is None else f"value {value:.6g}"


def _named(labels: Mapping[str, str]) -> dict[str, str]:
    """Our `alert` is their `alertname`."""
    return {("alertname" if name == ALERT_NAME else name): value for name, value in labels.items()}


def _common(each: list[dict[str, str]]) -> dict[str, str]:
    if not each:
        return {}
    return {name: value for name, value in each[0].items() if all(one.get(name) == value for one in each)}


def _rfc3339(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
