"""A request may lower its class, in either protocol, and never raise it."""

from __future__ import annotations

from typing import Any

import pytest

from serving.errors import InvalidRequest
from serving.gateway.priority import CLASSES, lower, of_header, of_number
from serving.gateway.replicas import Replica
from serving.wire import FrameReader, decode_infer
from tests.serving.gateway.harness import Harness, echo_body, until


@pytest.mark.parametrize(
    ("number", "wish"),
    [(None, None), (0, None), (1, "interactive"), (2, "standard"), (3, "batch"), (2**63, "batch")],
)
def test_larger_numbers_are_lower_classes(number: Any, wish: str | None) -> None:
    assert of_number(number) == wish


@pytest.mark.parametrize("number", [-1, True, False, 1.5, "1"])
def test_a_priority_that_is_no_number_is_refused(number: Any) -> None:
    with pytest.raises(InvalidRequest, match="priority"):
        of_number(number)


def test_the_header_names_a_class() -> None:
    assert [of_header(name.upper().encode()) for name in CLASSES] == list(CLASSES)
    with pytest.raises(InvalidRequest, match="interactive, standard, batch"):
        of_header(b"urgent")


def test_of_two_classes_the_lower_one_counts() -> None:
    for own, name in enumerate(CLASSES):
        for wish, wished in enumerate(CLASSES):
            assert lower(name, wished) == CLASSES[max(own, wish)]


class Sent:
    """The classes in which requests went to their worker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.classes: list[str] = []
        send = Replica.send

        def noted(replica: Replica, pending: Any, frame: list[bytes | memoryview]) -> None:
            reader, data = FrameReader(), b"".join(frame)
            reader.get_buffer()[: len(data)] = data
            self.classes.append(decode_infer(reader.frames(len(data))[0].header).sla_class)
            send(replica, pending, frame)

        monkeypatch.setattr(Replica, "send", noted)


async def profiled(harness: Harness, sla_class: str) -> None:
    harness.publish_profile(sla_class=sla_class)
    await until(lambda: harness.gateway._snapshot.profiles["pro_a"].sla_class == sla_class)


@pytest.mark.parametrize(
    ("own", "priority", "header", "wanted"),
    [
        ("interactive", None, None, "interactive"),
        ("interactive", 0, None, "interactive"),
        ("interactive", 1, None, "interactive"),
        ("interactive", 2, None, "standard"),
        ("interactive", 3, None, "batch"),
        ("interactive", None, "batch", "batch"),
        ("interactive", 2, "batch", "batch"),
        ("interactive", 3, "standard", "batch"),
        ("standard", 1, None, "standard"),
        ("batch", 1, "interactive", "batch"),
    ],
)
async def test_a_request_is_queued_measured_and_billed_in_the_lower_class(
    echo: Harness,
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    priority: int | None,
    header: str | None,
    wanted: str,
) -> None:
    await profiled(echo, own)
    sent = Sent(monkeypatch)
    body = echo_body() if priority is None else echo_body(parameters={"priority": priority})
    named = {} if header is None else {"x_tidegate_priority": header}
    response = await echo.infer(body, **named)
    assert response.status_code == 200
    assert sent.classes == [wanted]
    assert [account.sla_class for _, account in echo.gateway._usage._open] == [wanted]
    counted = {r.labels.sla_class for r in echo.gateway._metrics._recorders.values() if r.window.answered}
    assert counted == {wanted}
    assert all(recorder.pending == 0 for recorder in echo.gateway._metrics._recorders.values())


async def test_the_header_lowers_an_embedding_too(encoder: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    headers = encoder.auth | {"x-tidegate-priority": "batch"}
    response = await encoder.client.post(
        "/v1/embeddings", json={"model": "mini", "input": "w1"}, headers=headers
    )
    assert (response.status_code, sent.classes) == (200, ["batch"])


async def test_a_class_that_does_not_exist_is_refused(echo: Harness) -> None:
    response = await echo.infer(x_tidegate_priority="urgent")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
    response = await echo.infer(echo_body(parameters={"priority": -1}))
    assert (response.status_code, response.json()["param"]) == (400, "priority")
