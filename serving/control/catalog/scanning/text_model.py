"""A directory with an encoder: safetensors weights, configuration, tokenizer. Data only.

Everything is refused that is not on the list below. Documentation is accepted and kept, because the digest
names the directory as it was given. The refusals name what to leave out or how to convert.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import plain_json, safetensors

PICKLES = frozenset(
    {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".dill", ".mar"}
)
CODE = frozenset({".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".js", ".ipynb", ".whl", ".pth2"})
TEXT = frozenset({".txt", ".md", ".rst", ".tsv"})
INERT_NAMES = frozenset({".gitattributes", ".gitignore", "LICENSE", "NOTICE", "README"})
MAX_TEXT_BYTES = 256 << 20
MAX_SENTENCEPIECE_BYTES = 64 << 20

REMOTE_CODE_KEYS = frozenset({"auto_map", "trust_remote_code", "custom_pipelines", "custom_generate"})
KERNEL_KEYS = frozenset(
    {"attn_implementation", "_attn_implementation", "_attn_implementation_internal", "experts_implementation",
     "_experts_implementation", "use_kernels", "kernel_config"}
)  # fmt: skip
PLAIN_KERNELS = frozenset(
    {None, False, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"}
)
MODULES = frozenset({"Transformer", "Pooling", "Normalize"})
"""What the encoder engine computes. Leaving another module out would give other numbers in silence."""
_PICKLE_START = re.compile(rb"\x80[\x02-\x05]|PK\x03\x04|\x93NUMPY")


def scan(root: Path) -> None:
    """Raises `Refused` for the first file that is not plain data, or when an essential file is missing."""
    files = {str(file.relative_to(root)): file for file in sorted(root.rglob("*")) if file.is_file()}
    for member, file in files.items():
        _scan_file(file, member)
    if "config.json" not in files:
        raise Refused("an encoder needs config.json at the top of the directory")
    if not any(name.endswith(".safetensors") for name in files):
        raise Refused("an encoder needs its weights as *.safetensors")
    if "tokenizer.json" not in files:
        raise Refused("an encoder needs tokenizer.json (save the tokenizer with its fast version)")
    _check_index(files)


def _scan_file(file: Path, member: str) -> None:
    suffix = file.suffix.lower()
    if suffix in PICKLES:
        raise Refused(
            f"{suffix} files are pickles: loading one can run code. Save the weights as safetensors", member
        )
    if suffix in CODE:
        raise Refused("code does not belong into an encoder artifact; it is never run from one", member)
    if suffix == ".safetensors":
        safetensors.scan(file, member)
    elif suffix == ".json":
        _check_config(plain_json.parse(file.read_bytes(), member), member)
    elif suffix == ".model":
        _scan_sentencepiece(file, member)
    elif suffix in TEXT or file.name in INERT_NAMES:
        _scan_text(file, member)
    else:
        raise Refused(
            f"files of type {suffix or file.name!r} are not accepted; leave it out "
            "(accepted: .safetensors .json .txt .model .md)",
            member,
        )


def _check_config(document: Any, member: str) -> None:
    """Walk a configuration for everything that makes a library fetch or import code."""
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            for key, value in node.items():
                _check_entry(key, value, member)
            pending.extend(node.values())
    if member.rsplit("/", 1)[-1] == "modules.json":
        _check_modules(document, member)


def _check_entry(key: str, value: Any, member: str) -> None:
    if key in REMOTE_CODE_KEYS and value not in (None, False, {}, []):
        raise Refused(f"{key} asks for code outside the library; such models are not accepted", member)
    if key in KERNEL_KEYS and not _is_plain_kernel(value):
        raise Refused(f"{key} names a kernel to be fetched and run ({value!r})", member)
    if key == "quantization_config" and value:
        raise Refused(
            "quantised checkpoints are not supported; save the weights in fp32, bf16 or fp16", member
        )


def _is_plain_kernel(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain_kernel(item) for item in value.values())
    return not isinstance(value, list) and value in PLAIN_KERNELS


def _check_modules(document: Any, member: str) -> None:
    """sentence-transformers imports each module's `type` by name."""
    if not isinstance(document, list):
        raise Refused("a list of modules is expected", member)
    for module in document:
        kind = module.get("type") if isinstance(module, dict) else None
        if not isinstance(kind, str) or not re.fullmatch(r"sentence_transformers(\.[A-Za-z_]\w*)+", kind):
            raise Refused(f"module type {kind!r} is not one of sentence-transformers' own", member)
        if kind.rpartition(".")[2] not in MODULES:
            raise Refused(f"the encoder engine does not compute the module {kind}", member)


def _check_index(files: dict[str, Path]) -> None:
    """A shard index may only name shards that are here."""
    for member in (name for name in files if name.endswith(".safetensors.index.json")):
        weight_map = plain_json.parse_object(files[member].read_bytes(), member).get("weight_map", {})
        shards = set(weight_map.values()) if isinstance(weight_map, dict) else {None}
        folder = member.rpartition("/")[0]
        for shard in shards:
            path = f"{folder}/{shard}" if folder else shard
            if not isinstance(shard, str) or "/" in shard or path not in files:
                raise Refused(f"the index names a shard that is not in the artifact: {shard!r}", member)


def _scan_text(file: Path, member: str) -> None:
    if file.stat().st_size > MAX_TEXT_BYTES:
        raise Refused(f"larger than the {MAX_TEXT_BYTES} bytes a text file may have", member)
    raw = file.read_bytes()
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("not text, in spite of its name", member) from None
    if b"\0" in raw or _PICKLE_START.match(raw):
        raise Refused("not text, in spite of its name", member)


def _scan_sentencepiece(file: Path, member: str) -> None:
    """A sentencepiece model is a protobuf whose first field is the list of pieces (field 1, bytes)."""
    if file.stat().st_size > MAX_SENTENCEPIECE_BYTES:
        raise Refused("too large for a sentencepiece model", member)
    with file.open("rb") as stream:
        if not stream.read(1) == b"\x0a":
            raise Refused("not a sentencepiece model, in spite of its name", member)
