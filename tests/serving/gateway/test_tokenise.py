"""Texts become ids once; what is cached is bounded and belongs to one tenant."""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import VersionEntry
from serving.errors import InputTooLong, ModelNotReady
from serving.gateway.tokenise import SLICE_CHARS, SLICE_TEXTS, IdCache, Tokeniser, Tokenisers, _slices
from tests.serving.gateway.harness import write_tokenizer


def version(directory: Path, **options: Any) -> VersionEntry:
    return VersionEntry(
        id="mv_mini",
        model="mini",
        number=1,
        engine="encoder",
        artifact_sha256="",
        artifact_path=str(directory),
        options=options,
    )


def ids(*rows: list[int]) -> list[bytes]:
    return [array("i", row).tobytes() for row in rows]


async def test_ids_are_the_same_from_the_tokenizer_and_from_the_cache(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenisers = Tokenisers()
    entry = version(tmp_path)
    for _ in range(2):
        rows = await tokenisers.rows("tnt_a", entry, ["w0 w1", "w2", "w0 w1"])
        assert rows == ids([1, 3, 4, 2], [1, 5, 2], [1, 3, 4, 2])
    tokenisers.close()


async def test_a_large_list_keeps_its_order(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenisers = Tokenisers()
    texts = [f"w{index % 100} w{index // 100}" for index in range(1500)]
    rows = await tokenisers.rows("tnt_a", version(tmp_path), texts)
    assert rows == ids(*([1, 3 + index % 100, 3 + index // 100, 2] for index in range(1500)))
    tokenisers.close()


def test_a_text_is_cut_or_refused_as_the_version_says(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    long = " ".join(["w0"] * 10)
    assert Tokeniser(version(tmp_path, max_tokens=4, truncate=True)).encode([long]) == ids([1, 3, 3, 2])
    with pytest.raises(InputTooLong) as refused:
        Tokeniser(version(tmp_path, max_tokens=4, truncate=False)).encode([long])
    assert refused.value.numbers == {"index": 0, "tokens": 12, "max_tokens": 4}


def test_a_huge_text_is_not_even_tokenised(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    huge = "w0 " * 1_000_000
    assert len(Tokeniser(version(tmp_path, max_tokens=4)).encode([huge])[0]) == 16
    with pytest.raises(InputTooLong):
        Tokeniser(version(tmp_path, max_tokens=4, truncate=False)).encode([huge])


async def test_a_refusal_names_the_text_by_its_place_in_the_request(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenisers = Tokenisers()
    entry = version(tmp_path, max_tokens=4, truncate=False)
    texts = [f"w{index % 100}" for index in range(200)]
    await tokenisers.rows("tnt_a", entry, texts[:100])
    with pytest.raises(InputTooLong) as refused:
        await tokenisers.rows("tnt_a", entry, [*texts, " ".join(["w0"] * 10)])
    assert refused.value.numbers["index"] == 200
    tokenisers.close()


async def test_a_version_without_a_tokenizer_is_not_ready(tmp_path: Path) -> None:
    tokenisers = Tokenisers()
    for content in (None, b"{", b"[]"):
        if content is not None:
            (tmp_path / "tokenizer.json").write_bytes(content)
        with pytest.raises(ModelNotReady):
            await tokenisers.rows("tnt_a", version(tmp_path), ["w0"])
    write_tokenizer(tmp_path)
    assert await tokenisers.rows("tnt_a", version(tmp_path), ["w0"]) == ids([1, 3, 2])
    tokenisers.close()


async def test_a_tenant_that_sends_many_long_texts_lets_others_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(tmp_path)
    tokenisers, entry, order, go = Tokenisers(), version(tmp_path), list[str](), threading.Event()
    encode = Tokeniser.encode

    def noted(self: Tokeniser, texts: Sequence[str], places: Sequence[int]) -> list[bytes]:
        go.wait(20)
        order.append(texts[0].split()[0])
        return encode(self, texts, places)

    await tokenisers.wait(entry)
    monkeypatch.setattr(Tokeniser, "encode", noted)
    texts = [f"w1 {'w0 ' * 1000}{index}" for index in range(200)]
    flood = [asyncio.create_task(tokenisers.rows("tnt_a", entry, [text] * 90)) for text in texts[:20]]
    await asyncio.sleep(0)
    other = asyncio.create_task(tokenisers.rows("tnt_b", entry, ["w2 " * 1000]))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(other, *flood)
    assert order.index("w2") <= 2
    tokenisers.close()


@pytest.mark.parametrize("is_cached", [False, True])
async def test_a_long_list_of_short_texts_does_not_hold_the_event_loop(
    tmp_path: Path, is_cached: bool
) -> None:
    write_tokenizer(tmp_path)
    tokenisers, entry, texts = Tokenisers(), version(tmp_path), [f"w{index}" for index in range(4096)]
    await tokenisers.wait(entry)
    if is_cached:
        await tokenisers.rows("tnt_a", entry, texts)
    rows = asyncio.create_task(tokenisers.rows("tnt_a", entry, texts))
    rounds = 0
    while not rows.done():
        rounds += 1
        await asyncio.sleep(0)
    assert rounds >= 4096 / SLICE_TEXTS
    tokenisers.close()


@given(sizes=st.lists(st.integers(0, 2 * SLICE_CHARS), min_size=1, max_size=300))
def test_slices_hold_every_text_once_and_not_too_many(sizes: list[int]) -> None:
    slices = list(_slices(sizes))
    assert [index for start, end in slices for index in range(start, end)] == list(range(len(sizes)))
    for start, end in slices:
        assert end - start == 1 or (end - start <= SLICE_TEXTS and sum(sizes[start:end]) <= SLICE_CHARS)


def test_tenants_do_not_see_each_others_cache() -> None:
    assert IdCache.key("tnt_a", "mv", "w0") != IdCache.key("tnt_b", "mv", "w0")


@given(sizes=st.lists(st.integers(0, 2000), max_size=100))
def test_the_cache_never_outgrows_its_bound(sizes: list[int]) -> None:
    cache = IdCache(5000)
    for index, size in enumerate(sizes):
        cache.put(b"%d" % index, bytes(size))
        assert cache.size_bytes <= 5000
