"""A `.pt2` archive passes only when nothing that torch does with it could run code."""

from __future__ import annotations

import contextlib
import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import pickles, pt2
from tests.serving.control.catalog import crafting
from tests.serving.control.catalog.pt2_scanning import refusal, scan


def test_an_ordinary_program_passes(tmp_path: Path) -> None:
    scan(tmp_path, crafting.pt2())


def test_sample_inputs_with_a_call_are_refused(tmp_path: Path) -> None:
    samples = crafting.torch_save(crafting.hostile_pickle())
    assert "would call" in refusal(tmp_path, crafting.pt2(samples=samples))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_every_pickle_protocol_is_seen_through(tmp_path: Path, protocol: int) -> None:
    samples = crafting.torch_save(crafting.hostile_pickle(protocol=protocol))
    assert "pickle" in refusal(tmp_path, crafting.pt2(samples=samples))


def test_sample_inputs_of_the_old_format_are_refused(tmp_path: Path) -> None:
    """Without a zip around it torch unpickles from the first byte."""
    refusal(tmp_path, crafting.pt2(samples=crafting.hostile_pickle()))


def test_torchscript_among_the_sample_inputs_is_refused(tmp_path: Path) -> None:
    samples = crafting.torch_save(pickle.dumps(((), {}), 2), **{"constants.pkl": b"\x80\x02)."})
    assert "constants.pkl" in refusal(tmp_path, crafting.pt2(samples=samples))


def test_bytes_behind_a_pickle_are_refused() -> None:
    with pytest.raises(Refused, match="after the end"):
        pickles.scan(pickle.dumps([], 2) + crafting.hostile_pickle(), "data.pkl")


def test_plain_values_and_ordered_dictionaries_pass() -> None:
    pickles.scan(pickle.dumps(((1, 2.5, "text", True, None), {"k": [OrderedDict()]}), 2), "data.pkl")


@pytest.mark.parametrize(
    "raw",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"ctorch.hub\nload\n.",
        b"ctorch\nload\n.",
        b"ctorch.serialization\nload\n.",
        b"ctorch._utils _rebuild\n\n.",
        b"(ios\nsystem\n(lp0\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x82\x01.",
        b"\x80\x02cfoo",
    ],
)
def test_pickles_with_any_other_global_are_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        pickles.scan(raw, "data.pkl")


class Watching(pickle.Unpickler):
    """Loads for real, and tells when anything off the list is imported."""

    def find_class(self, module: str, name: str) -> Any:
        assert (module, name) in pickles.ALLOWED_GLOBALS
        return OrderedDict

    def persistent_load(self, pid: Any) -> Any:
        return pid


FRAGMENTS = [
    b"\x80\x02", b"\x80\x04", b"cos\nsystem\n", b"ccollections\nOrderedDict\n", b"(", b")", b"R", b"\x81", b"b", b"o",
    b"\x93", b"\x8c\x02os", b"\x8c\x06system", b"X\x02\x00\x00\x00os", b"i", b"ios\nsystem\n", b"q\x00", b"h\x00", b"t",
    b"}", b"]", b"Q", b"P0\n", b"\x82\x01", b"0", b"2", b"K\x01", b".", b"\x95" + bytes(8), b"\x94",
]  # fmt: skip


@given(parts=st.lists(st.sampled_from(FRAGMENTS), max_size=12))
def test_a_pickle_that_passes_imports_nothing_off_the_list(parts: list[bytes]) -> None:
    raw = b"".join(parts) + b"."
    try:
        pickles.scan(raw, "data.pkl")
    except Refused:
        return
    with contextlib.suppress(
        pickle.UnpicklingError, TypeError, ValueError, IndexError, EOFError, AttributeError, KeyError
    ):
        Watching(io.BytesIO(raw)).load()


def test_weights_stored_as_a_pickle_are_refused(tmp_path: Path) -> None:
    payload = {
        "path_name": "weight_0",
        "is_param": True,
        "use_pickle": True,
        "tensor_meta": crafting.tensor_meta(2),
    }
    raw = crafting.pt2(weights={"w": payload}, members={"data/weights/weight_0": crafting.hostile_pickle()})
    assert "pickle" in refusal(tmp_path, raw)


@pytest.mark.parametrize(
    ("member", "word"),
    [
        ("data/constants/custom_obj_0", "pickled object"),
        ("data/constants/opaque_obj_0", "pickled object"),
        ("data/weights/model.pt", "pickled weights"),
        ("data/constants/model.pt", "pickled weights"),
        ("data/aotinductor/model/model.so", "compiled code"),
        ("data/aotinductor/model/x.wrapper.cpp", "compiled code"),
        ("models/other.json", "exactly one program"),
        ("code/__torch__.py", "TorchScript"),
        ("data.pkl", "TorchScript"),
        ("extra/../../x", "odd name"),
        ("executorch/x.pte", "not a member"),
    ],
)
def test_members_that_torch_would_run_or_nobody_knows_are_refused(
    tmp_path: Path, member: str, word: str
) -> None:
    assert word in refusal(tmp_path, crafting.pt2(members={member: b"x"}))


def test_the_format_of_old_torch_is_refused(tmp_path: Path) -> None:
    files = {"version": b"8.1", "serialized_state_dict.pt": crafting.hostile_pickle()}
    assert "2.7 or older" in refusal(tmp_path, crafting.zip_of(files, zipfile.ZIP_STORED))


def test_weights_that_claim_more_than_their_bytes_are_refused(tmp_path: Path) -> None:
    meta = crafting.tensor_meta(1 << 40)
    payload = {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": meta}
    raw = crafting.pt2(weights={"w": payload}, members={"data/weights/weight_0": b""})
    assert "size" in refusal(tmp_path, raw)


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    assert "compressed" in refusal(tmp_path, crafting.pt2(method=zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize(
    "damage", [lambda raw: b"#!/bin/sh\n" + raw, lambda raw: raw + b"\0", lambda raw: raw[:-1]]
)
def test_bytes_before_or_after_the_archive_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    refusal(tmp_path, damage(crafting.pt2()))


def test_two_archives_in_one_file_are_refused(tmp_path: Path) -> None:
    """Readers differ in which of two directories they believe."""
    refusal(tmp_path, crafting.pt2() + crafting.pt2())


def test_names_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    """torch's reader looks names up without regard to case."""
    assert "two members" in refusal(tmp_path, crafting.pt2(members={"models/MODEL.json": b"{}"}))


def test_a_name_that_the_two_headers_disagree_on_is_refused(tmp_path: Path) -> None:
    raw = crafting.pt2()
    first = raw.index(b"m/byteorder")
    refusal(tmp_path, raw[:first] + b"m/ByteOrder" + raw[first + 11 :])


@given(position=st.integers(min_value=0), byte=st.integers(min_value=0, max_value=255))
def test_one_changed_byte_never_escapes_as_another_error(
    position: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = bytearray(crafting.pt2())
    raw[position % len(raw)] = byte
    file = tmp_path_factory.mktemp("z") / "model.pt2"
    file.write_bytes(raw)
    with contextlib.suppress(Refused):
        pt2.scan(file)
