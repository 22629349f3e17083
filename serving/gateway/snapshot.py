"""The configuration as this gateway knows it now: tables by kind, built from the seam's changes.

Readers on the hot path only look things up; everything derived is dropped when something it came from changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from serving.contract import (
    BindingEntry,
    ConfigChange,
    DeploymentEntry,
    KeyEntry,
    ModelEntry,
    PriceEntry,
    ProfileEntry,
    QuotaEntry,
    TenantEntry,
    VersionEntry,
)
from serving.prices import PriceTable
from serving.profiles import ProfileTable

KINDS = ("tenant", "key", "model", "version", "profile", "binding", "deployment", "price", "quota")


@dataclass(frozen=True, slots=True)
class Grant:
    """Who asks: a known key and its tenant, authenticated."""

    key: KeyEntry
    tenant: TenantEntry
    generation: int = 0
    """Of the snapshot it was made from: it holds for as long as nothing changed there."""

    def may_use(self, model: ModelEntry) -> bool:
        """Whether both the tenant and this key were given the model."""
        is_granted = model.tenant_ids is None or self.tenant.id in model.tenant_ids
        return is_granted and (self.key.models is None or model.name in self.key.models)


class Snapshot:
    """Single writer (`apply`), many readers, one thread."""

    def __init__(self) -> None:
        self.tenants: dict[str, TenantEntry] = {}
        self.keys: dict[str, KeyEntry] = {}
        self.models: dict[str, ModelEntry] = {}
        self.versions: dict[str, VersionEntry] = {}
        self.profiles: dict[str, ProfileEntry] = {}
        self.bindings: dict[str, BindingEntry] = {}
        self.deployments: dict[str, DeploymentEntry] = {}
        self._prices: dict[str, PriceEntry] = {}
        self.quotas: dict[str, QuotaEntry] = {}
        self.is_loaded = False
        self.generation = 0
        """Goes up with every change."""
        self.profile_table = ProfileTable((), {})
        self.prices = PriceTable()
        self._tables: dict[str, dict[str, Any]] = {
            "tenant": self.tenants,
            "key": self.keys,
            "model": self.models,
            "version": self.versions,
            "profile": self.profiles,
            "binding": self.bindings,
            "deployment": self.deployments,
            "price": self._prices,
            "quota": self.quotas,
        }

    def apply(self, changes: Iterable[ConfigChange]) -> set[str]:
        """Take over changes and return the kinds they touched. Kinds of newer releases are ignored."""
        self.generation += 1
        touched: set[str] = set()
        for change in changes:
            table = self._tables.get(change.kind)
            if table is None:
                continue
            touched.add(change.kind)
            if change.body is None:
                table.pop(change.key, None)
            else:
                table[change.key] = change.body
        if touched & {"profile", "binding"}:
            self.profile_table = ProfileTable(self.bindings.values(), self.profiles)
        self._reprice(touched)
        return touched

    def _reprice(self, touched: set[str]) -> None:
        if "price" in touched:
            self.prices.set_prices(self._prices.values())
        if "deployment" in touched:
            classes = {k: v for entry in self.deployments.values() for k, v in entry.device_classes.items()}
            self.prices.set_classes(classes)
        if "version" in touched:
            self.prices.forget_lines()

    def models_of(self, grant: Grant) -> list[ModelEntry]:
        """The models this key may use, by name."""
        return sorted((m for m in self.models.values() if grant.may_use(m)), key=lambda m: m.name)
