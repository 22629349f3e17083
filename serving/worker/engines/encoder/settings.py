"""What an encoder's artifact directory and the version's options say, read without torch.

Options win over files. The files are those of transformers (`config.json`) and sentence-transformers
(`modules.json`, `1_Pooling/config.json`, `sentence_bert_config.json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from serving.worker.engines.contract import LoadFailed

Task = Literal["embedding", "classification"]
Pooling = Literal["mean", "cls"]
DTYPES = ("fp32", "bf16", "fp16")
QUANTIZATIONS = ("none", "int8")
EXECUTIONS = ("auto", "packed", "padded", "onnx")
DEFAULT_MAX_BATCH_ROWS = 128
_BEHIND_PADDING = {
    "camembert",
    "data2vec-text",
    "ibert",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
}
"""Model types whose positions start behind the padding id, as in RoBERTa."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    path: Path
    config: dict[str, Any]
    """`config.json` of the model."""
    task: Task
    pooling: Pooling
    normalize: bool
    dtype: str
    quantize: str
    execution: str
    compile: bool
    cuda_graphs: bool
    max_tokens: int
    max_batch_rows: int

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", ""))

    def notes(self) -> tuple[str, ...]:
        """Sentences on what was chosen, whatever the execution."""
        return ("Linear layers run in int8.",) if self.quantize == "int8" else ()

    @property
    def labels(self) -> tuple[str, ...]:
        labels = self.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        return tuple(str(labels[key]) for key in sorted(labels, key=int))


def read(path: Path, options: Mapping[str, str | int | float | bool]) -> EncoderSettings:
    """Raises `LoadFailed` when the directory has no usable config, or an option has no such value."""
    config = _json(path / "config.json")
    if config is None:
        raise LoadFailed("the artifact has no config.json: is it a transformers model directory?")
    return EncoderSettings(
        path=path,
        config=config,
        task=_task(config, options),
        pooling=_pooling(path, options),
        normalize=bool(options.get("normalize", _is_normalized(path))),
        dtype=_choice(options, "dtype", DTYPES),
        quantize=_choice(options, "quantize", QUANTIZATIONS),
        execution=_choice(options, "execution", EXECUTIONS),
        compile=bool(options.get("compile", False)),
        cuda_graphs=bool(options.get("cuda_graphs", True)),
        max_tokens=_max_tokens(path, config, options),
        max_batch_rows=int(options.get("max_batch_rows", DEFAULT_MAX_BATCH_ROWS)),
    )


def _choice(options: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    """The option's value; the first choice is its default."""
    value = str(options.get(name, choices[0]))
    if value not in choices:
        raise LoadFailed(f"option {name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _task(config: dict[str, Any], options: Mapping[str, Any]) -> Task:
    task = options.get("task")
    if task is None:
        names = config.get("architectures") or [""]
        return "classification" if "SequenceClassification" in names[0] else "embedding"
    if task not in ("embedding", "classification"):
        raise LoadFailed(f"option task must be embedding or classification, not {task!r}")
    return task


def _pooling(path: Path, options: Mapping[str, Any]) -> Pooling:
    match options.get("pooling") or _declared_pooling(path):
        case "mean":
            return "mean"
        case "cls":
            return "cls"
        case other:
            raise LoadFailed(f"pooling must be mean or cls, not {other!r}")


def _declared_pooling(path: Path) -> str:
    declared = _json(path / "1_Pooling" / "config.json")
    if declared is None:
        return "mean"
    modes = [key for key, value in declared.items() if key.startswith("pooling_mode_") and value is True]
    names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    return "+".join(names.get(mode, mode) for mode in modes)


def _is_normalized(path: Path) -> bool:
    modules = _json(path / "modules.json")
    return modules is None or any(str(each.get("type", "")).endswith("Normalize") for each in modules)


def _max_tokens(path: Path, config: dict[str, Any], options: Mapping[str, Any]) -> int:
    """The smallest of what the model's positions, sentence-transformers and the options allow."""
    positions = int(config.get("max_position_embeddings", 512))
    if config.get("model_type") in _BEHIND_PADDING:
        positions -= int(config.get("pad_token_id", 1) or 0) + 1
    declared = (_json(path / "sentence_bert_config.json") or {}).get("max_seq_length")
    wanted = options.get("max_tokens", declared)
    return min(positions, int(wanted)) if wanted else positions


def _json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise LoadFailed(f"{path.name} is not JSON: {error}") from error
