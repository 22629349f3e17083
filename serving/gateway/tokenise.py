"""Text → token ids, before scheduling: lengths are known to the scheduler and the model's core only computes.

Each version uses its own tokenizer, from `tokenizer.json` of its artifact. Version options: `max_tokens`
(special tokens included) and `truncate` (else a text that is too long is refused).
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import structlog
from tokenizers import Tokenizer

from serving.contract import VersionEntry
from serving.errors import InputTooLong, InvalidRequest, ModelNotReady
from serving.gateway.large import Turn

log = structlog.get_logger("tidegate.gateway.tokenise")

DEFAULT_MAX_TOKENS = 512
CHARS_PER_TOKEN = 64
"""No text needs more characters than this per token it may keep; what lies beyond is not even looked at."""
INLINE_CHARS = 2000
"""Up to about 1–2 ms of work is done on the event loop; more goes to a thread, in slices."""
SLICE_TEXTS = 64
SLICE_CHARS = 64 << 10
"""A slice is some tens of milliseconds of work: so long a tenant waits for each of the others."""
CACHED_CHARS = 4096


class IdCache:
    """Token ids by text, least recently used out, bounded in bytes.

    The tenant is part of the key: how long an answer took must not tell one tenant what another one sent.
    """

    _OVERHEAD_BYTES = 200

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._ids: OrderedDict[bytes, bytes] = OrderedDict()
        self.size_bytes = 0

    @staticmethod
    def key(tenant_id: str, version_id: str, text: str) -> bytes | None:
        """None for a text too long to be worth keeping."""
        if len(text) > CACHED_CHARS:
            return None
        salt = f"{tenant_id}\n{version_id}\n"
        return blake2b((salt + text).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def get(self, key: bytes) -> bytes | None:
        ids = self._ids.get(key)
        if ids is not None:
            self._ids.move_to_end(key)
        return ids

    def put(self, key: bytes, ids: bytes) -> None:
        if key in self._ids:
            return
        self._ids[key] = ids
        self.size_bytes += len(ids) + self._OVERHEAD_BYTES
        while self.size_bytes > self._limit:
            _, old = self._ids.popitem(last=False)
            self.size_bytes -= len(old) + self._OVERHEAD_BYTES


class Tokeniser:
    """One version's tokenizer with its limits."""

    def __init__(self, version: VersionEntry) -> None:
        """Reads the artifact. Raises `OSError` or `ValueError` when it holds no usable tokenizer."""
        path = Path(version.artifact_path) / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing")
        self.version_id = version.id
        self.max_tokens = int(version.options.get("max_tokens") or DEFAULT_MAX_TOKENS)
        self.most_chars = self.max_tokens * CHARS_PER_TOKEN
        """Of one text, that are looked at."""
        self.is_truncating = bool(version.options.get("truncate", True))
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if self.is_truncating:
            self._tokenizer.enable_truncation(self.max_tokens)
        self.vocabulary = self._tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str], places: Sequence[int] | None = None) -> list[bytes]:
        """INT32 ids of each text; `places` are their numbers in the request, for an error to name.

        Raises `InputTooLong` or `InvalidRequest`.
        """
        places = range(len(texts)) if places is None else places
        try:
            encodings = self._tokenizer.encode_batch_fast([self._bounded(text) for text in texts])
        except UnicodeEncodeError:
            raise InvalidRequest("a text is not valid Unicode") from None
        return [self._ids(encoding.ids, place) for place, encoding in zip(places, encodings, strict=True)]

    def check_ids(self, rows: Sequence[Sequence[int]]) -> list[bytes]:
        """Ids a client made itself. Raises `InputTooLong` or `InvalidRequest`."""
        out = []
        for index, given in enumerate(rows):
            row = given
            if not row:
                raise InvalidRequest(f"input {index} is an empty list of tokens", param="input")
            if len(row) > self.max_tokens and self.is_truncating:
                row = row[: self.max_tokens]
            if min(row) < 0 or max(row) >= self.vocabulary:
                raise InvalidRequest(
                    f"input {index} has a token id outside 0…{self.vocabulary - 1}", param="input"
                )
            out.append(self._ids(list(row), index))
        return out

    def _bounded(self, text: str) -> str:
        limit = self.most_chars
        if len(text) <= limit:
            return text
        if self.is_truncating:
            return text[:limit]
        raise InputTooLong(
            f"a text has {len(text)} characters; more than {limit} cannot fit in {self.max_tokens} tokens",
            param="input",
            numbers={"characters": len(text), "max_characters": limit, "max_tokens": self.max_tokens},
        )

    def _ids(self, ids: list[int], index: int) -> bytes:
        if len(ids) > self.max_tokens:
            if not self.is_truncating:
                raise InputTooLong(
                    f"input {index} has {len(ids)} tokens; this model takes {self.max_tokens}",
                    param="input",
                    numbers={"index": index, "tokens": len(ids), "max_tokens": self.max_tokens},
                )
            ids = ids[: self.max_tokens]
        return array("i", ids).tobytes()


class _Known(NamedTuple):
    """Texts as the cache knows them: their keys, their ids where it has them, the places where it has not."""

    keys: list[bytes | None]
    rows: list[bytes | None]
    missing: list[int]


class Tokenisers:
    """The tokenizers of the deployed versions, loaded once each, and the cache in front of them."""

    def __init__(self, cache_bytes: int = 32 << 20) -> None:
        self.cache = IdCache(cache_bytes)
        self._turn = Turn()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._loaded: dict[str, asyncio.Future[Tokeniser]] = {}
        self._origins: dict[str, object] = {}

    def update(self, versions: Iterable[VersionEntry]) -> None:
        """Start to load what is new (text engines only), forget what is gone."""
        wanted = {version.id: version for version in versions if version.engine == "encoder"}
        for version_id in list(self._loaded):
            if _origin(wanted.get(version_id)) != self._origins.get(version_id):
                self._loaded.pop(version_id).cancel()
                self._origins.pop(version_id, None)
        for version_id, version in wanted.items():
            if version_id not in self._loaded:
                self._load(version)

    def ready(self, version_id: str) -> Tokeniser | None:
        future = self._loaded.get(version_id)
        is_there = future is not None and future.done() and not future.cancelled()
        return future.result() if is_there and future is not None and not future.exception() else None

    async def wait(self, version: VersionEntry) -> Tokeniser:
        """Raises `ModelNotReady` when the artifact holds no usable tokenizer."""
        future = self._loaded.get(version.id) or self._load(version)
        try:
            return await asyncio.shield(future)
        except (OSError, ValueError):
            raise ModelNotReady("the tokenizer of this version cannot be loaded", retry_after_s=10) from None

    def rows_now(self, tenant_id: str, version: VersionEntry, texts: Sequence[str]) -> list[bytes] | None:
        """`rows` where that needs no waiting and about a millisecond at most, else None. Raises as `encode`."""
        tokeniser = self.ready(version.id)
        if tokeniser is None or len(texts) > SLICE_TEXTS:
            return None
        known = self._known(tokeniser, tenant_id, texts)
        if sum(len(texts[index]) for index in known.missing) > INLINE_CHARS:
            return None
        if known.missing:
            self._fill(known, tokeniser.encode([texts[index] for index in known.missing], known.missing))
        return [ids for ids in known.rows if ids is not None]

    async def rows(self, tenant_id: str, version: VersionEntry, texts: Sequence[str]) -> list[bytes]:
        """Ids of each text, from the cache where known. Raises as `Tokeniser.encode` and `wait`."""
        tokeniser = self.ready(version.id) or await self.wait(version)
        out: list[bytes] = []
        for start, end in _slices([min(len(text), tokeniser.most_chars) for text in texts]):
            if start:
                await asyncio.sleep(0)  # let others in, also where the cache knows everything
            out += await self._slice(tokeniser, tenant_id, texts[start:end], start)
        return out

    async def _slice(
        self, tokeniser: Tokeniser, tenant_id: str, texts: Sequence[str], first: int
    ) -> list[bytes]:
        known = self._known(tokeniser, tenant_id, texts)
        if known.missing:
            places = [first + index for index in known.missing]
            missing = [texts[index] for index in known.missing]
            self._fill(known, await self._encode(tokeniser, tenant_id, missing, places))
        return [ids for ids in known.rows if ids is not None]

    def _known(self, tokeniser: Tokeniser, tenant_id: str, texts: Sequence[str]) -> _Known:
        cache = self.cache
        keys = [cache.key(tenant_id, tokeniser.version_id, text) for text in texts]
        rows = [None if key is None else cache.get(key) for key in keys]
        return _Known(keys, rows, [index for index, ids in enumerate(rows) if ids is None])

    def _fill(self, known: _Known, found: Sequence[bytes]) -> None:
        for index, ids in zip(known.missing, found, strict=True):
            known.rows[index] = ids
            if (key := known.keys[index]) is not None:
                self.cache.put(key, ids)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _encode(
        self, tokeniser: Tokeniser, tenant_id: str, texts: list[str], places: list[int]
    ) -> list[bytes]:
        if sum(map(len, texts)) <= INLINE_CHARS:
            return tokeniser.encode(texts, places)
        loop = asyncio.get_running_loop()
        async with self._turn.of(tenant_id):  # the thread has one queue, which a tenant must not fill
            return await loop.run_in_executor(self._executor, tokeniser.encode, texts, places)

    def _load(self, version: VersionEntry) -> asyncio.Future[Tokeniser]:
        future = asyncio.get_running_loop().run_in_executor(self._executor, _load, version)
        self._loaded[version.id] = future
        self._origins[version.id] = _origin(version)
        future.add_done_callback(lambda done: self._forget_failure(version.id, done))
        return future

    def _forget_failure(self, version_id: str, future: asyncio.Future[Tokeniser]) -> None:
        """A failed load is tried again by the next request that needs it."""
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            log.error("tokenizer.failed", version=version_id, reason=str(error))
            if self._loaded.get(version_id) is future:
                del self._loaded[version_id]


def _slices(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where slices of texts with so many characters begin and end."""
    start = chars = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= SLICE_TEXTS or chars + size > SLICE_CHARS):
            yield start, index
            start, chars = index, 0
        chars += size
    yield start, len(sizes)


def _origin(version: VersionEntry | None) -> object:
    """What a tokenizer depends on."""
    return None if version is None else (version.artifact_path, version.options)


def _load(version: VersionEntry) -> Tokeniser:
    try:
        return Tokeniser(version)
    except OSError:
        raise
    except Exception as error:  # the tokenizers library raises bare Exception for a malformed file
        raise ValueError(str(error)) from error
