"""The scan against torch itself: what torch writes passes, and what torch would run is refused.

Each hostile archive is first loaded by torch, to show that the refusal is not for a danger of our invention.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import pt2
from tests.serving.control.catalog import crafting

pytestmark = pytest.mark.torch

LOAD = "import sys, torch; torch.export.load(sys.argv[1]).module()(torch.ones(2, 4))"


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small program with parameters, a buffer, a constant, a dynamic batch and a dictionary of outputs."""
    import torch

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)
            self.register_buffer("shift", torch.ones(3))
            self.constant = torch.arange(3.0)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            y = torch.relu(self.linear(x)) + self.shift + self.constant
            with torch.no_grad():
                flat = x.reshape(x.shape[0] * 4)
            return {"y": y, "p": torch.softmax(y, -1), "flat": flat}

    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Small(), (torch.randn(2, 4),), dynamic_shapes={"x": {0: batch}})
    path = tmp_path_factory.mktemp("pt2") / "model.pt2"
    torch.export.save(program, path)
    return path


def rewritten(honest: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    with zipfile.ZipFile(honest) as archive:
        files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(files)
    target.write_bytes(crafting.zip_of({f"m/{name}": raw for name, raw in files.items()}, zipfile.ZIP_STORED))
    return target


def run_with_torch(path: Path) -> str:
    """Load and call the program in a process of its own; what it printed."""
    command = [sys.executable, "-c", LOAD, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout


def edit_program(files: dict[str, bytes], edit: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(files["models/model.json"])
    edit(document)
    files["models/model.json"] = json.dumps(document).encode()


def test_what_torch_writes_passes(honest: Path) -> None:
    pt2.scan(honest)


def test_decomposed_and_convolutional_programs_pass(tmp_path: Path) -> None:
    import torch

    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2), torch.nn.GELU(),
    )  # fmt: skip
    shapes = ({0: torch.export.Dim("batch", max=32)},)
    program = torch.export.export(network.eval(), (torch.randn(2, 3, 16, 16),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "a.pt2")
    torch.export.save(program.run_decompositions(), tmp_path / "b.pt2")
    pt2.scan(tmp_path / "a.pt2")
    pt2.scan(tmp_path / "b.pt2")


def test_a_transformer_encoder_passes(tmp_path: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=40
    )
    ids = torch.ones(2, 8, dtype=torch.long)
    batch, length = torch.export.Dim("batch", max=16), torch.export.Dim("length", max=64)
    dynamic = {"input_ids": {0: batch, 1: length}, "attention_mask": {0: batch, 1: length}}

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(config).eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.mean(1)

    program = torch.export.export(Pooled(), (ids, ids), dynamic_shapes=dynamic)
    torch.export.save(program, tmp_path / "bert.pt2")
    pt2.scan(tmp_path / "bert.pt2")


def test_sample_inputs_that_torch_would_run_are_refused(honest: Path, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"

    def change(files: dict[str, bytes]) -> None:
        files["data/sample_inputs/model.pt"] = crafting.torch_save(crafting.hostile_pickle(proof))

    path = rewritten(honest, tmp_path / "model.pt2", change)
    run_with_torch(path)
    assert proof.exists(), "torch no longer runs this; the scan may be relaxed"
    with pytest.raises(Refused):
        pt2.scan(path)


def test_a_size_that_torch_would_evaluate_is_refused(honest: Path, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    code = f"__import__('os').mkdir({str(proof)!r})"

    def edit(document: dict[str, Any]) -> None:
        document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0]["as_expr"]["expr_str"] = code

    path = rewritten(honest, tmp_path / "model.pt2", lambda files: edit_program(files, edit))
    run_with_torch(path)
    assert proof.exists(), "torch no longer runs this; the scan may be relaxed"
    with pytest.raises(Refused):
        pt2.scan(path)


def test_a_guard_that_torch_would_execute_is_refused(honest: Path, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    code = f"__import__('os').mkdir({str(proof)!r}) is None"

    def edit(document: dict[str, Any]) -> None:
        document["guards_code"] = [code]

    path = rewritten(honest, tmp_path / "model.pt2", lambda files: edit_program(files, edit))
    run_with_torch(path)
    assert proof.exists(), "torch no longer runs this; the scan may be relaxed"
    with pytest.raises(Refused):
        pt2.scan(path)


def test_a_tree_specification_that_torch_would_import_is_refused(honest: Path, tmp_path: Path) -> None:
    context = json.dumps({"__enum__": True, "fqn": "this:x", "name": "y"})
    spec = json.dumps([1, {"type": "builtins.dict", "context": context, "children_spec": []}])

    def edit(document: dict[str, Any]) -> None:
        document["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = spec

    path = rewritten(honest, tmp_path / "model.pt2", lambda files: edit_program(files, edit))
    assert "Zen of Python" in run_with_torch(path), "torch no longer imports this; the scan may be relaxed"
    with pytest.raises(Refused):
        pt2.scan(path)
