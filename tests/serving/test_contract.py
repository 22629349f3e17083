"""What crosses the seam comes back as it was, and old readers read new rows."""

from __future__ import annotations

import msgspec
import pytest

from serving import contract
from serving.errors import BY_CODE, DataPlaneError, QueueFull, from_code


@pytest.mark.parametrize(
    "body",
    [
        contract.TenantEntry(id="tnt_a", slug="a", name="A"),
        contract.KeyEntry(id="key_a", tenant_id="tnt_a", digest=bytes(range(32)), models=("m",)),
        contract.ModelEntry(
            id="mdl_a", name="m", routes=(contract.WeightedVersion(version_id="mv_a", weight=100),)
        ),
        contract.DeploymentEntry(id="dep_a", model="m"),
        contract.ValidationEntry(version_id="mv_a", host="h"),
        contract.ProfileEntry(id="pro_a", name="fast", sla_class="interactive"),
        contract.BindingEntry(id="bnd_a", profile_id="pro_a"),
    ],
)
def test_a_config_body_round_trips(body: contract.ConfigBody) -> None:
    assert contract.decode_config(contract.encode_body(body)) == body


def test_fields_of_a_newer_release_are_ignored() -> None:
    raw = b'{"type":"tenant","id":"tnt_a","slug":"a","name":"A","from_the_future":1}'
    assert contract.decode_config(raw) == contract.TenantEntry(id="tnt_a", slug="a", name="A")


def test_a_row_that_is_not_ours_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        contract.decode_config(b'{"type":"nonsense"}')


def test_every_error_code_is_unique_and_rebuilds_its_class() -> None:
    def tree(root: type[DataPlaneError]) -> list[type[DataPlaneError]]:
        return [root, *(kind for child in root.__subclasses__() for kind in tree(child))]

    kinds = tree(DataPlaneError)
    assert len(BY_CODE) == len(kinds)
    error = from_code("queue_full", "full", numbers={"queued": 3})
    assert isinstance(error, QueueFull)
    assert error.numbers == {"queued": 3}
