"""English and Simplified Chinese are both whole: every sentence of the console is translated and compiled."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.utils.translation import override

from console.templatetags import figures

CATALOG = settings.BASE_DIR / "console" / "locale" / "zh_Hans" / "LC_MESSAGES"
TAG = re.compile(r"""{%\s*translate\s+(?:"([^"]+)"|'([^']+)')""")
BLOCK = re.compile(r"{%\s*blocktranslate[^%]*%}(.*?){%\s*endblocktranslate", re.S)
CALLS = {"_", "gettext", "gettext_lazy"}


def test_every_sentence_is_in_the_compiled_catalog() -> None:
    with (CATALOG / "django.mo").open("rb") as file:
        known = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    sentences = {name if isinstance(name, str) else name[0] for name in known}
    assert set(_of_templates()) | set(_of_code()) <= sentences


def test_the_compiled_catalog_is_the_written_one() -> None:
    written = (CATALOG / "django.po").read_text()
    with (CATALOG / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    texts = {text for text in compiled.values() if text}
    assert "fuzzy" not in written
    missing = [
        text
        for text in re.findall(r'^msgstr(?:\[0\])? "(.+)"$', written, re.M)
        if ast.literal_eval(f'"{text}"') not in texts
    ]
    assert missing == []


def test_a_reader_of_chinese_gets_a_chinese_page(db: None) -> None:
    with override("en"):  # the request leaves its language behind; other tests read English
        page = Client(headers={"accept-language": "zh-hans"}).get("/accounts/login/").content.decode()
    assert 'lang="zh-hans"' in page
    assert "用户名或邮箱" in page


@pytest.mark.parametrize(("seconds", "text"), [(7300, "2 小时前"), (-90, "1 分钟后"), (3, "刚刚")])
def test_relative_times_are_whole_phrases(seconds: float, text: str) -> None:
    with override("zh-hans"):
        assert figures.relative(seconds) == text


def _of_templates() -> Iterator[str]:
    for path in (settings.BASE_DIR / "templates").rglob("*.html"):
        source = path.read_text()
        for double, single in TAG.findall(source):
            yield (double or single).replace("%", "%%")
        for block in BLOCK.findall(source):
            for part in re.split(r"{%\s*plural\s*%}", block)[:1]:
                yield re.sub(r"{{\s*(\w+)\s*}}", r"%(\1)s", part.replace("%", "%%"))


def _of_code() -> Iterator[str]:
    for folder in ("pages", "templatetags"):
        for path in (settings.BASE_DIR / "console" / folder).rglob("*.py"):
            yield from _called(path)


def _called(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
        if is_call and isinstance(node.args[0], ast.Constant):  # type: ignore[union-attr]
            yield node.args[0].value  # type: ignore[union-attr]
