"""CSV that a spreadsheet opens, shows and does not execute."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.spreadsheets import cell, lines


@pytest.mark.parametrize(
    "name",
    [
        "=1+1",
        "+1",
        "-2",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        "\n=1",
        "＝1",
        "＋1",
        "－1",
        "＠A",
        "\u00a0=1",
        "\u200b=1",
        "\ufeff=1",
        "\x01=1",
        "　＝1",
        "|calc",
    ],
)
def test_a_name_is_no_formula(name: str) -> None:
    assert cell(name) == f"'{name}"


def test_numbers_stay_numbers() -> None:
    assert [cell(value) for value in (-5, 0, 2.5, None, "a-b")] == ["-5", "0", "2.5", "", "a-b"]


def test_lines_end_with_crlf_and_quote_what_needs_it() -> None:
    assert lines([["a", "b"], ['say "hi"', "x,y"]]) == 'a,b\r\n"say ""hi""","x,y"\r\n'


@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=2),
        max_size=5,
    )
)
def test_whatever_is_written_is_read_again(rows: list[list[str]]) -> None:
    found = list(csv.reader(io.StringIO(lines(rows), newline="")))
    assert found == [[cell(value) for value in row] for row in rows]
