"""A `.pt2` archive of `torch.export.save`: strict zip, raw tensors, one scanned program, no pickles but one.

The one is the sample inputs, which torch unpickles with its full unpickler when the restricted one fails.
They are scanned opcode by opcode (`pickles.py`). Compiled libraries (AOTInductor), custom objects, legacy
pickled weights and the format of torch ≤ 2.7 are refused.
"""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import pickles, program
from serving.control.catalog.scanning.zips import StrictZip

MAX_PROGRAM_BYTES = 256 << 20
MAX_SAMPLE_BYTES = 256 << 20
_MEMBERS = re.compile(
    r"archive_format|archive_version|byteorder|\.format_version|\.storage_alignment|\.data/(version|serialization_id)"
    r"|models/model\.json|data/sample_inputs/model\.pt"
    r"|data/weights/(weight_[0-9]+|model_weights_config\.json)"
    r"|data/constants/(tensor_[0-9]+|model_constants_config\.json)"
)
_SAMPLE_MEMBERS = re.compile(
    r"data\.pkl|data/[0-9]+|version|byteorder|\.format_version|\.storage_alignment|\.data/serialization_id"
)
_REASONS = (
    (re.compile(r"data/aotinductor/|.*\.(so|o|cubin|cpp|ptx)$"), "compiled code; save the program with torch.export.save"),
    (re.compile(r"data/constants/(custom|opaque)_obj_"), "a pickled object: loading one can run code"),
    (re.compile(r"data/(weights|constants)/.*\.pt$"), "pickled weights of an old format; save the program again"),
    (re.compile(r"(code/|constants\.pkl|data\.pkl)"), "TorchScript and torch.save archives are pickles; use torch.export"),
    (re.compile(r"models/"), "exactly one program, named 'model', is accepted"),
)  # fmt: skip


def is_archive(names: list[str]) -> bool:
    """Whether a zip with these members claims to be a program rather than a packed directory."""
    endings = ("/archive_format", "/models/model.json", "/data.pkl", "/constants.pkl")
    return any(f"/{name}".endswith(endings) or name == "serialized_exported_program.json" for name in names)


def scan(file: Path) -> None:
    """Raises `Refused` with the first reason not to load the archive."""
    with file.open("rb") as stream:
        archive = StrictZip(stream, file.name)
        root = _root(archive, file.name)
        for name in archive.members:
            _check_member(name.removeprefix(root), _MEMBERS)
        _check_head(archive, root)
        program.scan(_read(archive, root, "models/model.json", MAX_PROGRAM_BYTES), "models/model.json")
        _scan_payload(archive, root, "data/weights/", "model_weights_config.json")
        _scan_payload(archive, root, "data/constants/", "model_constants_config.json")
        _scan_samples(_read(archive, root, "data/sample_inputs/model.pt", MAX_SAMPLE_BYTES))


def _root(archive: StrictZip, label: str) -> str:
    """torch takes the first member's folder as the archive's; there must be no other."""
    roots = {name.partition("/")[0] if "/" in name else "" for name in archive.members}
    if "" in roots and "version" in archive.members:
        raise Refused(
            "written by torch 2.7 or older, whose format holds pickles; save the program again", label
        )
    if len(roots) != 1 or "" in roots:
        raise Refused("members outside its one folder", label)
    return f"{roots.pop()}/"


def _check_member(name: str, accepted: re.Pattern[str]) -> None:
    if accepted.fullmatch(name):
        return
    for pattern, reason in _REASONS:
        if pattern.match(name):
            raise Refused(reason, name)
    raise Refused("not a member that torch.export.save writes", name)


def _check_head(archive: StrictZip, root: str) -> None:
    if (
        _read(archive, root, "archive_format", 16) != b"pt2"
        or _read(archive, root, "archive_version", 16) != b"0"
    ):
        raise Refused("an archive version this platform has not read", "archive_version")
    if f"{root}byteorder" in archive.members and _read(archive, root, "byteorder", 16) != b"little":
        raise Refused("big-endian tensors", "byteorder")


def _scan_payload(archive: StrictZip, root: str, folder: str, config: str) -> None:
    payloads = program.scan_payload(_read(archive, root, folder + config, MAX_PROGRAM_BYTES), folder + config)
    for name, payload in payloads.config.items():
        member = archive.members.get(f"{root}{folder}{payload.path_name}")
        if member is None:
            raise Refused(f"{name} is in no member of the archive", folder + config)
        # torch allocates the declared size of an empty member before anything could check it.
        meta = payload.tensor_meta
        sizes = [s.as_int if isinstance(s.as_int, int) else -1 for s in meta.sizes] if meta else [-1]
        if min(sizes, default=0) < 0 or (member.size_bytes == 0 and math.prod(sizes) != 0):
            raise Refused(f"{name} declares a size its bytes do not have", folder + config)


def _scan_samples(raw: bytes) -> None:
    label = "data/sample_inputs/model.pt"
    if not raw:
        return
    archive = StrictZip(io.BytesIO(raw), label)
    root = _root(archive, label)
    for name in archive.members:
        if not _SAMPLE_MEMBERS.fullmatch(name.removeprefix(root)):
            raise Refused("a member that torch.save does not write for tensors", f"{label}/{name}")
    pickles.scan(_read(archive, root, "data.pkl", pickles.MAX_PICKLE_BYTES), f"{label}/data.pkl")


def _read(archive: StrictZip, root: str, name: str, limit_bytes: int) -> bytes:
    if root + name not in archive.members:
        raise Refused(f"it lacks {name}")
    return archive.read(root + name, limit_bytes)
