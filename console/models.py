"""What the console itself keeps: answers of the API that may be asked for twice."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class KeptAnswer(models.Model):
    """The answer to a POST with an `Idempotency-Key`, written in the transaction of what the request did."""

    account = models.CharField(max_length=100)
    """Who asked: keys of two accounts are different keys."""
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    """Of method, address and body: the same key with another request is a mistake."""
    status = models.PositiveSmallIntegerField()
    headers = models.JSONField(default=dict)
    body = models.JSONField(null=True)
    needs = models.JSONField(default=dict)
    """`tenant` the answer tells of, or null, and the `rights` there of who got it."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "key"], name="console_answer_is_kept_once"),
        ]
        indexes = [models.Index(fields=["created_at"], name="console_answer_by_age")]

    def __str__(self) -> str:
        return f"{self.account} {self.key}"
