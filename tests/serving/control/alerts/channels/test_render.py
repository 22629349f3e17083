"""Each kind of channel is sent exactly what its receiver reads, within its limits, and labels write no markup."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from serving.control.alerts.channels import dingtalk, email, feishu, slack, webhook, wecom
from serving.control.alerts.channels.message import Language, message_of
from serving.control.alerts.engine import Alert
from serving.control.alerts.notify import Notification, Standing

URL = "https://hooks.example.com/x?key=1"
NOW = 1_700_000_100.0
HOSTILE = '<!channel> <@all> @all [a](http://b) *x* & "q"'


def told(
    count: int = 1, state: str = "firing", name: str = "Slow", summary: str = "Look there"
) -> Notification:
    alerts = tuple(standing(number, state, name, summary) for number in range(count))
    return Notification(
        id="ntf_1",
        receiver="ach_1",
        route_id="art_1",
        group_key="art_1:ach_1",
        group_labels={"alert": name},
        reason="fired" if state == "firing" else "resolved",
        alerts=alerts,
        left_out=3 if count > 1 else 0,
        news=(),
        at=1_700_000_000.0,
    )


def standing(number: int, state: Any, name: str, summary: str) -> Standing:
    alert = Alert(
        fingerprint=f"{number:016x}",
        labels={"model": "encoder"},
        state=state,
        since=1_700_000_000.0,
        fired_at=1_700_000_000.0,
        resolved_at=1_700_000_060.0 if state == "resolved" else None,
        value=412.5,
    )
    labels = {"model": "encoder", "alert": name, "severity": "critical"}
    return Standing(
        alert=alert, rule_id="alr_1", rule_name=name, severity="critical", labels=labels, summary=summary
    )


def test_a_webhook_has_every_field_of_alertmanagers_version_4() -> None:
    body = json.loads(webhook.render(told(), URL, "ops", "https://t.example", [], NOW).body)
    assert body == {
        "version": "4",
        "groupKey": "art_1:ach_1",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "ops",
        "groupLabels": {"alertname": "Slow"},
        "commonLabels": {"model": "encoder", "alertname": "Slow", "severity": "critical"},
        "commonAnnotations": {"summary": "Look there", "description": "value 412.5"},
        "externalURL": "https://t.example",
        "notification_reason": "new alerts",
        "alerts": [
            {
                "status": "firing",
                "labels": {"model": "encoder", "alertname": "Slow", "severity": "critical"},
                "annotations": {"summary": "Look there", "description": "value 412.5"},
                "startsAt": "2023-11-14T22:13:20.000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "https://t.example/alerts/0000000000000000",
                "fingerprint": "0000000000000000",
            }
        ],
    }


def test_a_resolved_alert_has_its_end_and_the_same_fingerprint() -> None:
    body = json.loads(webhook.render(told(state="resolved"), URL, "ops", "", [], NOW).body)
    alert = body["alerts"][0]
    assert (body["status"], alert["status"]) == ("resolved", "resolved")
    assert alert["endsAt"] == "2023-11-14T22:14:20.000Z"
    assert alert["fingerprint"] == "0000000000000000"


def test_a_webhook_is_signed_anew_under_the_same_id_in_every_attempt() -> None:
    first = webhook.render(told(), URL, "ops", "", [b"new", b"old"], NOW)
    later = webhook.render(told(), URL, "ops", "", [b"new"], NOW + 600)
    assert first.headers["webhook-id"] == later.headers["webhook-id"] == "ntf_1"
    assert later.headers["webhook-timestamp"] == str(int(NOW + 600))
    marks = first.headers["webhook-signature"].split(" ")
    signed = f"ntf_1.{int(NOW)}.".encode() + first.body
    for key, mark in zip((b"new", b"old"), marks, strict=True):
        assert b64decode(mark.removeprefix("v1,")) == hmac.digest(key, signed, "sha256")


def test_a_webhook_too_long_counts_the_alerts_it_leaves_out() -> None:
    post = webhook.render(told(100, summary="x" * 10_000), URL, "ops", "", [], NOW)
    body = json.loads(post.body)
    assert len(post.body) <= webhook.MAX_BODY_BYTES
    assert 0 < len(body["alerts"]) < 100
    assert body["truncatedAlerts"] == 3 + 100 - len(body["alerts"])


def test_slack_gets_a_text_and_a_coloured_attachment() -> None:
    body = json.loads(slack.render(told(), URL, "en").body)
    assert set(body) == {"text", "attachments"}
    assert body["text"] == "[Firing] Slow"
    (attachment,) = body["attachments"]
    assert set(attachment) == {"fallback", "color", "text", "mrkdwn_in", "ts"}
    assert "model=encoder · value 412.5 · since 2023-11-14 22:13:20 UTC" in attachment["text"]


def test_feishu_gets_a_signed_card_of_plain_text() -> None:
    body = json.loads(feishu.render(told(), URL, "zh-hans", "s3", NOW).body)
    assert list(body) == ["timestamp", "sign", "msg_type", "card"]
    key = f"{int(NOW)}\ns3".encode()
    assert body["sign"] == b64encode(hmac.digest(key, b"", "sha256")).decode()
    assert body["msg_type"] == "interactive"
    assert body["card"]["header"] == {
        "title": {"tag": "plain_text", "content": "[告警] Slow"},
        "template": "red",
    }
    assert {each["text"]["tag"] for each in body["card"]["elements"]} == {"plain_text"}


def test_dingtalk_is_signed_in_its_address() -> None:
    post = dingtalk.render(told(), URL, "en", "s3", NOW)
    asked = parse_qs(urlsplit(post.url).query)
    stamp = str(int(NOW * 1000))
    mark = hmac.digest(b"s3", f"{stamp}\ns3".encode(), "sha256")
    assert asked == {"key": ["1"], "timestamp": [stamp], "sign": [b64encode(mark).decode()]}
    body = json.loads(post.body)
    assert set(body) == {"msgtype", "markdown", "at"}
    assert body["msgtype"] == "markdown"
    assert set(body["markdown"]) == {"title", "text"}


def test_robots_without_a_secret_are_sent_to_as_they_are() -> None:
    assert dingtalk.render(told(), URL, "en", "", NOW).url == URL
    assert "sign" not in json.loads(feishu.render(told(), URL, "en", "", NOW).body)


def test_wecom_gets_markdown() -> None:
    body = json.loads(wecom.render(told(), URL, "zh-hans").body)
    assert set(body) == {"msgtype", "markdown"}
    assert body["markdown"]["content"].startswith('<font color="warning">')


def test_a_mail_is_text_and_html_with_an_id_of_its_own() -> None:
    mail = email.render(told(name="<b>\r\nBcc: x"), ("a@example.com",), "en", "t.example")
    assert mail.message_id == "<ntf_1@t.example>"
    assert "\n" not in mail.subject and "\r" not in mail.subject
    assert "<b>" not in mail.html and "&lt;b&gt;" in mail.html
    assert "Look there" in mail.text


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_no_chat_message_is_longer_than_its_receiver_takes(language: Language) -> None:
    many = told(100, name="模型" * 50, summary="很慢" * 250)
    assert len(json.loads(slack.render(many, URL, language).body)["attachments"][0]["text"]) <= 3000
    assert len(feishu.render(many, URL, language, "s", NOW).body) <= 20_000
    assert len(dingtalk.render(many, URL, language, "s", NOW).body) <= 20_000
    content = json.loads(wecom.render(many, URL, language).body)["markdown"]["content"]
    assert len(content.encode()) <= 4096
    assert ("more" if language == "en" else "另有") in content


def test_no_label_mentions_anybody_or_writes_markup() -> None:
    hostile = told(name=HOSTILE, summary=HOSTILE)
    assert "<!channel>" not in slack.render(hostile, URL, "en").body.decode()
    by_dingtalk = json.loads(dingtalk.render(hostile, URL, "en", "", NOW).body)["markdown"]
    by_wecom = json.loads(wecom.render(hostile, URL, "en").body)["markdown"]
    for text in (by_dingtalk["text"], by_wecom["content"]):
        assert "<@all>" not in text and "@all" not in text and "[a](" not in text
    assert "@" not in by_dingtalk["title"] and "<" not in by_dingtalk["title"]


def test_a_title_counts_what_is_told_and_what_is_left_out() -> None:
    assert message_of(told(2), "en").title == "[Firing · 5] Slow"
    assert message_of(told(2), "en").lines()[-1] == "and 3 more"


@pytest.mark.parametrize(
    ("kind", "refused", "busy", "fine"),
    [
        (feishu, b'{"code":19021,"msg":"sign"}', b'{"code":11232,"msg":"slow"}', b'{"code":0}'),
        (dingtalk, b'{"errcode":310000,"errmsg":"sign"}', b'{"errcode":130101}', b'{"errcode":0}'),
        (wecom, b'{"errcode":93000,"errmsg":"key"}', b'{"errcode":45009}', b'{"errcode":0}'),
    ],
)
def test_a_robot_that_refuses_with_status_200_is_understood(
    kind: Any, refused: bytes, busy: bytes, fine: bytes
) -> None:
    assert "It answered" in kind.answer(refused).error and not kind.answer(refused).is_busy
    assert kind.answer(busy).is_busy
    for body in (fine, b"", b"\xff", b"[1]", b'{"errcode":"x","code":"x"}'):
        assert kind.answer(body).error == ""
