"""Whether a faster variant says the same: cosines of its embeddings to those of fp32, over HTTP."""

from __future__ import annotations

import urllib.request

import msgspec
import numpy as np

from benchmarks import model
from benchmarks.cases import Server
from benchmarks.results import Agreement
from benchmarks.texts import sentences

SENTENCES = 64


class _Item(msgspec.Struct):
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


def measure(exact: Server, variant: Server) -> Agreement:
    """Raises `OSError` when one of them does not answer."""
    texts = [*sentences("short", SENTENCES // 2), *sentences("mixed", SENTENCES // 2)]
    cosines = (embeddings(exact, texts) * embeddings(variant, texts)).sum(axis=1)
    return Agreement(variant=variant.name, least_cosine=round(float(cosines.min()), 6), sentences=len(texts))


def embeddings(server: Server, texts: list[str]) -> np.ndarray:
    """Normalised rows, asked one by one."""
    rows = np.array([_embedding(server, text) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _embedding(server: Server, text: str) -> list[float]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{server.path}",
        data=msgspec.json.encode({"model": model.NAME, "input": text}),
        headers={"Content-Type": "application/json"} | server.headers_by_tenant["main"],
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return msgspec.json.decode(answer.read(), type=_Answer).data[0].embedding
