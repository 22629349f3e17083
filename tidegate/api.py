"""The nouns of the API: each method is one request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tidegate import documents
from tidegate.errors import Refused
from tidegate.noun import Noun
from tidegate.people import Accounts, Invitations, Members, Organisations, Sessions
from tidegate.trail import Audit, Webhooks
from tidegate.transport import Transport

NOT_FOUND = 404


class Tidegate:
    """The console at `url`, asked with an API key, or with the cookies of a session.

    Every method raises `Refused` with what the console said, and `Unreachable` when it said nothing.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        key: str | None = None,
        cookies: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 30.0,
        http: httpx.BaseTransport | None = None,
    ) -> None:
        self.transport = Transport(url, key, cookies or {}, timeout_s, http)
        self.tenants = Tenants(self.transport)
        self.keys = Keys(self.transport)
        self.models = Models(self.transport)
        self.versions = Versions(self.transport)
        self.deployments = Deployments(self.transport)
        self.quotas = Quotas(self.transport)
        self.members = Members(self.transport)
        self.invitations = Invitations(self.transport)
        self.organisations = Organisations(self.transport)
        self.accounts = Accounts(self.transport)
        self.sessions = Sessions(self.transport)
        self.audit = Audit(self.transport)
        self.webhooks = Webhooks(self.transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transport.close()

    def me(self) -> dict[str, Any]:
        """Who asks, and their rights."""
        found: dict[str, Any] = self.transport.get("/me")
        return found

    def usage(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        group_by: Sequence[str] = ("day",),
        **filters: str,
    ) -> documents.Usage:
        """Days as `2026-03-01`, both included; `filters` by tenant, key, model, version or class."""
        query = {"since": since, "until": until, "group_by": ",".join(group_by), **filters}
        found: documents.Usage = self.transport.get("/usage", **query)
        return found

    def forecast(self, tenant_id: str | None = None, model: str | None = None) -> dict[str, Any]:
        """What the running month will cost."""
        found: dict[str, Any] = self.transport.get("/usage/forecast", tenant=tenant_id, model=model)
        return found

    def statement(self, tenant_id: str, month: str | None = None) -> dict[str, Any]:
        """Of a month as `2026-03`; the running one by default."""
        found: dict[str, Any] = self.transport.get(f"/tenants/{tenant_id}/statement", month=month)
        return found


class Tenants(Noun):
    def list(self, **filters: Any) -> Iterator[documents.Tenant]:
        return self._at.rows("/tenants", **filters)

    def get(self, tenant_id: str) -> documents.Tenant:
        found: documents.Tenant = self._at.get(f"/tenants/{tenant_id}")
        return found

    def named(self, slug: str) -> documents.Tenant:
        """By its slug, or its id."""
        found = self.get(slug) if slug.startswith("tnt_") else next(self.list(slug=slug), None)
        return _there(found, "tenant", slug)

    def create(self, slug: str, name: str, **values: Any) -> documents.Tenant:
        made: documents.Tenant = self._at.post("/tenants", {"slug": slug, "name": name, **values})
        return made

    def change(self, tenant_id: str, *, if_match: str | None = None, **values: Any) -> documents.Tenant:
        changed: documents.Tenant = self._at.patch(f"/tenants/{tenant_id}", values, if_match=if_match)
        return changed

    def rehearse(self, tenant_id: str, **values: Any) -> dict[str, Any]:
        """What `change` would do: `before`, `after`, `changes`."""
        found: dict[str, Any] = self._at.patch(f"/tenants/{tenant_id}", values, dry_run="true")
        return found

    def suspend(self, tenant_id: str, reason: str = "") -> documents.Tenant:
        changed: documents.Tenant = self._at.post(f"/tenants/{tenant_id}/suspend", {"reason": reason})
        return changed

    def resume(self, tenant_id: str) -> documents.Tenant:
        changed: documents.Tenant = self._at.post(f"/tenants/{tenant_id}/resume")
        return changed


class Keys(Noun):
    def list(self, tenant_id: str | None = None) -> Iterator[documents.Key]:
        return self._at.rows("/keys", tenant=tenant_id)

    def get(self, key_id: str) -> documents.Key:
        found: documents.Key = self._at.get(f"/keys/{key_id}")
        return found

    def create(
        self,
        tenant_id: str,
        name: str,
        *,
        scopes: Sequence[str] = ("infer",),
        allowed_models: Sequence[str] | None = None,
        allowed_networks: Sequence[str] | None = None,
        expires_at: str | None = None,
    ) -> documents.NewKey:
        """`token` is in this answer only."""
        models = None if allowed_models is None else list(allowed_models)
        networks = None if allowed_networks is None else list(allowed_networks)
        body = {"name": name, "scopes": list(scopes), "expires_at": expires_at}
        body |= {"allowed_models": models, "allowed_networks": networks}
        made: documents.NewKey = self._at.post(f"/tenants/{tenant_id}/keys", body)
        return made

    def roll(
        self, key_id: str, *, overlap_s: int = 24 * 3600, expires_at: str | None = None
    ) -> documents.NewKey:
        """Another key in its place; the old one works for `overlap_s` seconds more. `token` is in this answer only."""
        body = {"overlap_s": overlap_s, "expires_at": expires_at}
        made: documents.NewKey = self._at.post(f"/keys/{key_id}/roll", body)
        return made

    def revoke(self, key_id: str) -> documents.Key:
        changed: documents.Key = self._at.post(f"/keys/{key_id}/revoke")
        return changed


class Quotas(Noun):
    def list(self, tenant_id: str | None = None) -> Iterator[dict[str, Any]]:
        return self._at.rows("/quotas", tenant=tenant_id)

    def standings(self, tenant_id: str) -> Iterator[dict[str, Any]]:
        """What is used, reserved and left of each now, and when it begins anew."""
        return self._at.rows(f"/tenants/{tenant_id}/quota-standings")

    def create(self, tenant_id: str, **values: Any) -> dict[str, Any]:
        """`resource`, `window`, `limit` in base units, `key`, `model`, `burst`, …"""
        return self._post(f"/tenants/{tenant_id}/quotas", values)

    def change(self, quota_id: str, **values: Any) -> dict[str, Any]:
        changed: dict[str, Any] = self._at.patch(f"/quotas/{quota_id}", values)
        return changed

    def delete(self, quota_id: str) -> None:
        self._at.delete(f"/quotas/{quota_id}")


class Models(Noun):
    def list(self, **filters: Any) -> Iterator[documents.Model]:
        return self._at.rows("/models", **filters)

    def named(self, name: str) -> documents.Model:
        """By its name, which is unique."""
        return _there(next(self.list(name=name), None), "model", name)

    def create(
        self, name: str, *, description: str = "", tenants: Sequence[str] | None = None
    ) -> documents.Model:
        """`tenants`: ids of those who may use it; None for everybody."""
        body = {
            "name": name,
            "description": description,
            "tenants": None if tenants is None else list(tenants),
        }
        made: documents.Model = self._at.post("/models", body)
        return made

    def change(self, model_id: str, **values: Any) -> documents.Model:
        """`description`, `is_public`, `pool_requests_per_s`, `pool_concurrency`, `idle_policy`."""
        changed: documents.Model = self._at.patch(f"/models/{model_id}", values)
        return changed

    def versions(self, model_id: str) -> Iterator[documents.Version]:
        return self._at.rows(f"/models/{model_id}/versions")

    def register(
        self,
        model_id: str,
        *,
        engine: str,
        file: Path | None = None,
        path: str | None = None,
        options: Mapping[str, Any] | None = None,
        price_micro_per_device_hour: int = 0,
    ) -> documents.Version:
        """A version from a file that is sent, or from a path on the server; neither for `echo`."""
        address = f"/models/{model_id}/versions"
        price = price_micro_per_device_hour
        if file is None:
            body = {"engine": engine, "options": dict(options or {}), "price_micro_per_device_hour": price}
            return self._version(self._at.post(address, body | ({"path": path} if path else {})))
        form = {
            "engine": engine,
            "options": json.dumps(dict(options or {})),
            "price_micro_per_device_hour": str(price),
        }
        with file.open("rb") as content:
            files = {"file": (file.name, content)}
            return self._version(self._at.ask("POST", address, data=form, files=files))

    def _version(self, made: Any) -> documents.Version:
        found: documents.Version = made
        return found

    def set_alias(self, model_id: str, alias: str, version_id: str) -> dict[str, Any]:
        changed: dict[str, Any] = self._at.put(f"/models/{model_id}/aliases/{alias}", {"version": version_id})
        return changed


class Versions(Noun):
    def get(self, version_id: str) -> documents.Version:
        found: documents.Version = self._at.get(f"/versions/{version_id}")
        return found

    def validate(self, version_id: str) -> documents.Version:
        changed: documents.Version = self._at.post(f"/versions/{version_id}/validate")
        return changed

    def archive(self, version_id: str) -> documents.Version:
        changed: documents.Version = self._at.post(f"/versions/{version_id}/archive")
        return changed


class Deployments(Noun):
    def list(self, **filters: Any) -> Iterator[documents.Deployment]:
        return self._at.rows("/deployments", **filters)

    def get(self, deployment_id: str) -> documents.Deployment:
        found: documents.Deployment = self._at.get(f"/deployments/{deployment_id}")
        return found

    def of_model(self, model_id: str) -> documents.Deployment:
        """The active one."""
        found = next(self.list(model=model_id, state="active"), None)
        return _there(found, "active deployment", model_id)

    def create(
        self,
        model_id: str,
        version_id: str,
        *,
        replicas: int = 1,
        device: str = "cpu",
        threads: int | None = None,
    ) -> documents.Deployment:
        body = {
            "model": model_id,
            "version": version_id,
            "replicas": replicas,
            "device": device,
            "threads": threads,
        }
        made: documents.Deployment = self._at.post("/deployments", body)
        return made

    def scale(self, deployment_id: str, replicas: int) -> documents.Deployment:
        return self._verb(deployment_id, "scale", {"replicas": replicas})

    def switch(self, deployment_id: str, version_id: str) -> documents.Deployment:
        return self._verb(deployment_id, "switch", {"version": version_id})

    def stop(self, deployment_id: str) -> documents.Deployment:
        return self._verb(deployment_id, "stop", None)

    def _verb(self, deployment_id: str, verb: str, body: dict[str, Any] | None) -> documents.Deployment:
        changed: documents.Deployment = self._at.post(f"/deployments/{deployment_id}/{verb}", body)
        return changed


def _there(found: Any, kind: str, name: str) -> Any:
    if found is None:
        raise Refused(NOT_FOUND, "not_found", f"No such {kind}: {name}", {}, "")
    return found
