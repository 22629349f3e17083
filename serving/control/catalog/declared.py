"""What an encoder's own files say about how it is meant to be used.

Read once, at registration, and stored as the version's options: then the gateway that tokenises and the
worker that computes cannot disagree, and a person sees what applies. A choice of the person wins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving.control.catalog.options import OptionValue
from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import plain_json

DEFAULT_POSITIONS = 512
_POSITIONS_BEHIND_PADDING = ("roberta", "xlm-roberta", "camembert")
_LEGACY_POOLING = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


def encoder_options(content: Path) -> dict[str, OptionValue]:
    """Task, pooling, normalisation and the longest input of a scanned encoder directory.

    Raises `Refused` when the model is meant to be pooled in a way this platform does not compute.
    """
    config = _object(content / "config.json")
    modules = _modules(content)
    return {
        "task": _task(config),
        "pooling": _pooling(content, modules),
        "normalize": not modules or any(kind.endswith(".Normalize") for kind, _ in modules),
        "max_tokens": _max_tokens(content, config),
    }


def _task(config: dict[str, Any]) -> str:
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    return "classification" if "SequenceClassification" in str(first) else "embedding"


def _modules(content: Path) -> list[tuple[str, str]]:
    """sentence-transformers' list of modules: type and folder, in order."""
    file = content / "modules.json"
    listed = plain_json.parse(file.read_bytes(), file.name) if file.is_file() else []
    return [(str(module["type"]), str(module.get("path", ""))) for module in listed]


def _pooling(content: Path, modules: list[tuple[str, str]]) -> str:
    folder = next((path for kind, path in modules if kind.endswith(".Pooling")), "1_Pooling")
    # Only a direct child: the path is a stranger's word.
    file = content / Path(folder).name / "config.json"
    declared = _object(file) if file.is_file() else {}
    mode = declared.get("pooling_mode", "+".join(_legacy_modes(declared)) or "mean")
    if mode not in ("mean", "cls"):
        raise Refused(f"its pooling is {mode!r}; the encoder engine computes mean and cls")
    return str(mode)


def _legacy_modes(declared: dict[str, Any]) -> list[str]:
    names = [name for name, is_on in declared.items() if name.startswith("pooling_mode_") and is_on is True]
    return [_LEGACY_POOLING.get(name, name) for name in names]


def _max_tokens(content: Path, config: dict[str, Any]) -> int:
    """The model's positions, or what sentence-transformers was told, whichever is less."""
    positions = _whole(config, "max_position_embeddings", DEFAULT_POSITIONS)
    if config.get("model_type") in _POSITIONS_BEHIND_PADDING:
        positions -= _whole(config, "pad_token_id", 0) + 1
    file = content / "sentence_bert_config.json"
    told = _whole(_object(file) if file.is_file() else {}, "max_seq_length", positions)
    return max(1, min(positions, told))


def _whole(document: dict[str, Any], name: str, otherwise: int) -> int:
    value = document.get(name)
    if value is None:
        return otherwise
    if type(value) is not int or not 0 <= value <= 1 << 20:
        raise Refused(f"{name} is {value!r}; a whole number is expected")
    return value


def _object(file: Path) -> dict[str, Any]:
    return plain_json.parse_object(file.read_bytes(), file.name)
