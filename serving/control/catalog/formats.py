"""What an artifact is, told by its content, and the scan that vouches for it.

Names and declared types are hints at most. `identify` looks at bytes; `scan` accepts only what cannot run
code when it is loaded — except `python`, which is code, and runs only after an operator has trusted it.
"""

from __future__ import annotations

from pathlib import Path

from serving.contract import EngineName
from serving.control.catalog.artifacts import SINGLE_FILES
from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import onnx, pt2, text_model

FORMATS_OF: dict[EngineName, tuple[str, ...]] = {
    "encoder": ("encoder",),
    "tensor": ("pt2",),
    "onnx": ("onnx",),
    "python": ("python",),
    "echo": (),
}
"""The formats each engine reads. An `echo` version has no artifact."""


_TITLES = {
    "encoder": "a directory of safetensors weights",
    "pt2": "torch.export programs",
    "onnx": "ONNX models",
    "python": "Python code",
}


def check(content: Path, engine: EngineName) -> str:
    """Scan `content` (a directory of received files) for `engine`; the format it is in.

    Raises `Refused`. A single program file is renamed to its stored name.
    """
    found = "python" if engine == "python" else identify(content)
    if found not in FORMATS_OF[engine]:
        raise _wrong_engine(content, found, engine)
    if found in SINGLE_FILES:
        file = _only_file(content)
        assert file is not None, "these formats were identified by their one file"
        file.rename(content / SINGLE_FILES[found])
    match found:
        case "encoder":
            text_model.scan(content)
        case "pt2":
            pt2.scan(content / SINGLE_FILES["pt2"])
        case "onnx":
            onnx.scan(content / SINGLE_FILES["onnx"])
        case "python":
            _check_python(content)
    return found


def _wrong_engine(content: Path, found: str, engine: EngineName) -> Refused:
    file = _only_file(content)
    if found == "pt2" and file is not None:
        pt2.scan(
            file
        )  # a file of `torch.save` is a zip too, and a pickle for every engine: its own reason says so
    reader = next(name for name, formats in FORMATS_OF.items() if found in formats)
    return Refused(f"the {engine} engine does not read {_TITLES[found]}; choose the {reader} engine")


def identify(content: Path) -> str:
    """`encoder`, `pt2` or `onnx`; raises `Refused` when it is none of them."""
    file = _only_file(content)
    return "encoder" if file is None else _identify_single(file)


def _only_file(content: Path) -> Path | None:
    """The one file of the artifact; None when there are several."""
    files = [path for path in content.rglob("*") if path.is_file()]
    return files[0] if len(files) == 1 else None


def _identify_single(file: Path) -> str:
    with file.open("rb") as stream:
        start = stream.read(16).ljust(16, b"\0")
    if start.startswith(b"PK\3\4"):
        return "pt2"
    if start[0] == 0x80 and 2 <= start[1] <= 5:
        raise Refused("a pickle: loading it can run code. Save weights as safetensors or export the program")
    if start[8:9] == b"{":
        raise Refused(
            "weights alone are not a model; send them with config.json and tokenizer.json, as one zip"
        )
    if file.name == "model.py":
        raise Refused("Python code; choose the python engine, which runs it once an operator has trusted it")
    # An ONNX model starts with its IR version: field 1, varint, a small number.
    if start[0] == 0x08 and 3 <= start[1] <= 32:
        return "onnx"
    raise Refused("neither a packed directory nor a torch.export (.pt2) or ONNX file")


def _check_python(content: Path) -> None:
    if not (content / "model.py").is_file():
        raise Refused("a python artifact is a directory (or a zip of one) with model.py at its top")
