"""Which SLA profile a request gets: one pure rule for the gateway and for the console's preview."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from serving.contract import BindingEntry, ProfileEntry

ENDPOINTS = ("infer", "embeddings")
"""What a binding may name as endpoint: `/v2/…/infer` and `/v1/embeddings`."""

FALLBACK = ProfileEntry(id="pro_builtin", name="built-in standard")
"""Used only while no platform default has arrived."""

_PRECEDENCE: tuple[tuple[bool, bool, bool], ...] = (
    (True, True, True),
    (True, False, True),
    (True, True, False),
    (True, False, False),
    (False, True, True),
    (False, True, False),
    (False, False, True),
    (False, False, False),
)
"""(tenant, model, endpoint) named by the binding, most specific first."""

Target = tuple[str | None, str | None, str | None]


class ProfileTable:
    """Bindings indexed once; `resolve` is at most eight dictionary look-ups."""

    def __init__(self, bindings: Iterable[BindingEntry], profiles: Mapping[str, ProfileEntry]) -> None:
        self._by_target: dict[Target, ProfileEntry] = {}
        for binding in sorted(bindings, key=lambda entry: entry.id):
            profile = profiles.get(binding.profile_id)
            # A binding may arrive before its profile: until then the next wider one applies.
            if profile is not None:
                self._by_target.setdefault((binding.tenant_id, binding.model, binding.endpoint), profile)

    def resolve(self, tenant_id: str, model: str, endpoint: str) -> ProfileEntry:
        """tenant+model+endpoint → tenant+endpoint → tenant+model → tenant → model+endpoint → model →
        endpoint → platform default."""
        for has_tenant, has_model, has_endpoint in _PRECEDENCE:
            found = self._by_target.get(
                (
                    tenant_id if has_tenant else None,
                    model if has_model else None,
                    endpoint if has_endpoint else None,
                )
            )
            if found is not None:
                return found
        return FALLBACK


def resolve(
    bindings: Iterable[BindingEntry],
    profiles: Mapping[str, ProfileEntry],
    *,
    tenant_id: str,
    model: str,
    endpoint: str,
) -> ProfileEntry:
    """The profile of one tenant × model × endpoint; build a `ProfileTable` to ask more than once."""
    return ProfileTable(bindings, profiles).resolve(tenant_id, model, endpoint)
