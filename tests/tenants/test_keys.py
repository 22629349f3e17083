"""Tokens of API keys: pure, so every text anybody may send is fair game."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from tenants.keys import DIGEST_BYTES, MAX_TOKEN_CHARS, digest_secret, new_token, parse_token

PUBLIC = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=12, max_size=12)
SECRET = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", min_size=43, max_size=43)


@given(PUBLIC, SECRET)
def test_every_well_formed_token_splits_into_key_id_and_secret(public: str, secret: str) -> None:
    assert parse_token(f"tg_{public}_{secret}") == (f"key_{public}", secret.encode())


@given(st.text(max_size=80))
def test_no_text_breaks_the_parser_and_what_it_accepts_rebuilds_the_text(text: str) -> None:
    parsed = parse_token(text)
    if parsed is not None:
        key_id, secret = parsed
        assert f"tg_{key_id.removeprefix('key_')}_{secret.decode()}" == text


@given(PUBLIC, SECRET, st.data())
def test_a_token_with_one_character_more_or_less_is_refused(
    public: str, secret: str, data: st.DataObject
) -> None:
    token = f"tg_{public}_{secret}"
    cut = data.draw(st.integers(0, len(token) - 1))
    assert parse_token(token[:cut] + token[cut + 1 :]) is None
    assert parse_token(token + data.draw(st.sampled_from(["\n", "a", " ", "=", "ä"]))) is None


def test_new_tokens_parse_back_and_never_repeat() -> None:
    made = [new_token() for _ in range(200)]
    assert len({token.id for token in made}) == len({token.secret for token in made}) == 200
    for token in made:
        assert parse_token(token.token) == (token.id, token.secret)
        assert len(token.token) == MAX_TOKEN_CHARS
        assert token.token.startswith(token.prefix + "_") and token.token.endswith(token.last_four)


def test_a_new_token_shows_no_secret_in_its_repr() -> None:
    token = new_token()
    assert token.secret.decode() not in repr(token)
    assert token.token not in repr(token)


@given(SECRET, st.binary(min_size=16, max_size=200))
def test_the_digest_is_keyed_blake2b(secret: str, pepper: bytes) -> None:
    digest = digest_secret(secret.encode(), pepper)
    assert digest == hashlib.blake2b(secret.encode(), key=pepper[:64], digest_size=32).digest()
    assert len(digest) == DIGEST_BYTES
    assert digest != digest_secret(secret.encode(), b"another pepper " + pepper[:20])
