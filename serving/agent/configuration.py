"""The part of the configuration that concerns one host, kept current from deltas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from serving.contract import (
    ConfigChange,
    DeploymentEntry,
    ReplicaSpec,
    TuningEntry,
    ValidationEntry,
    VersionEntry,
)


class Configuration:
    """Deployments, versions, validations and tunings, by key."""

    KINDS: ClassVar = ("deployment", "version", "validation", "tuning")

    def __init__(self, host: str) -> None:
        self._host = host
        self._deployments: dict[str, DeploymentEntry] = {}
        self._validations: dict[str, ValidationEntry] = {}
        self._tunings: dict[str, TuningEntry] = {}
        self.versions: dict[str, VersionEntry] = {}

    def apply(self, changes: Iterable[ConfigChange]) -> None:
        for change in changes:
            self._apply(change)

    def _apply(self, change: ConfigChange) -> None:
        match change.body:
            case None:
                self._forget(change.kind, change.key)
            case DeploymentEntry() as entry:
                self._deployments[change.key] = entry
            case VersionEntry() as entry:
                self.versions[change.key] = entry
            case ValidationEntry() as entry:
                self._validations[change.key] = entry
            case TuningEntry() as entry:
                self._tunings[change.key] = entry

    def _forget(self, kind: str, key: str) -> None:
        held: dict[str, dict] = {
            "deployment": self._deployments,
            "version": self.versions,
            "validation": self._validations,
            "tuning": self._tunings,
        }
        held.get(kind, {}).pop(key, None)

    def replicas(self) -> Sequence[ReplicaSpec]:
        """Those this host must run."""
        every = (spec for entry in self._deployments.values() for spec in entry.replicas)
        return [spec for spec in every if spec.host == self._host]

    def validations(self) -> dict[str, ValidationEntry]:
        return {key: entry for key, entry in self._validations.items() if entry.host == self._host}

    def tunings(self) -> dict[str, TuningEntry]:
        return {key: entry for key, entry in self._tunings.items() if entry.host == self._host}
