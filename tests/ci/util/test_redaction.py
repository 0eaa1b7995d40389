"""Secret values are found in the environment and in settings, and hidden in any form."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.util import redaction
from ci.util.files import remove_folder
from ci.util.redaction import redact_folder, secret_values
from ci.util.text import SHORTEST_HIDDEN, hide_values, make_inert, mask_credentials
from tests.ci.deep_folder import make_deep_folder

VALUE = "p&s/w=rd <é>\"'\\x"


@pytest.fixture(autouse=True)
def _nothing_hidden_afterwards() -> Iterator[None]:
    yield
    hide_values([])


def basic_authorization(user: str) -> Callable[[str], str]:
    return lambda value: base64.b64encode(f"{user}:{value}".encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a path": quote,
    "in a query": quote_plus,
    "JSON": json.dumps,
    "JSON of any characters": lambda value: json.dumps(value, ensure_ascii=False),
    "XML": lambda value: html.escape(value, quote=False),
    "an attribute": html.escape,
    "Python": repr,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 for addresses": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    **{f"authorization of {user}": basic_authorization(user) for user in ("a", "ab", "abc")},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_hidden(form: str) -> None:
    hide_values([VALUE])
    text = FORMS[form](VALUE)
    shown = mask_credentials(f"key={text};")
    assert "***" in shown
    # Of base64, the first and the last characters belong to other text too.
    assert len(shown) <= len("key=***;") + 8
    assert VALUE not in shown


@given(st.text(min_size=SHORTEST_HIDDEN, max_size=40), st.sampled_from(sorted(FORMS)))
def test_any_value_is_hidden(value: str, form: str) -> None:
    hide_values([value])
    parts = [line.strip() for line in value.splitlines()]
    shown = mask_credentials(FORMS[form](value))
    assert not any(part in shown.replace("***", "") for part in parts if len(part) > 12)


def test_each_line_of_a_key_is_hidden() -> None:
    hide_values(["-----BEGIN KEY-----\nAAAABBBB\nCCCCDDDD\n"])
    assert mask_credentials("got CCCCDDDD and AAAABBBB") == "got *** and ***"


def test_short_values_stay_readable() -> None:
    hide_values(["true", "12345"])
    assert mask_credentials("true 12345") == "true 12345"


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    hide_values(["secret", "secretive"])
    assert mask_credentials("a secretive secret") == "a *** ***"


@pytest.mark.parametrize("printed", ["the\x1b[31m\x1b[1m secret", "ring\aring"])
def test_no_control_character_reveals_a_secret(printed: str) -> None:
    hide_values(["the secret", "ring\aring"])
    assert make_inert(f"got {printed}") == "got ***"


def test_values_that_are_secrets(tmp_path: Path) -> None:
    environ = {
        "DEPLOY_TOKEN": "of deploy",
        "db_password": "of the database",
        "LAB_7": "asked for",
        "GIT_AUTHOR_NAME": "Ada",
        "SSH_AUTH_SOCK": str(tmp_path),
        "PATH": "/usr/bin",
        "INFINI_CI_DB": "postgresql://ci:of%20the%20store@db/ci",
        "DOCKER_HOST": "ssh://jenkins@lab",  # a name that logs may hold
        "OTHER_HOST": "ssh://jenkins:of-ssh@lab",
    }
    addresses = ["https://token-alone@index/simple https://index/other", "https://me:pw@proxy"]
    found = set(secret_values(environ, addresses=addresses, patterns=["LAB_*"]))
    assert found == {
        *("of deploy", "of the database", "asked for", "of%20the%20store", "of the store"),
        *("token-alone", "pw", "of-ssh"),
    }


def test_files_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "CHUNK", 64)
    hide_values(["hunter2!"])
    for before in range(60, 80):  # across the ends of pieces
        (tmp_path / f"{before}.log").write_bytes(b"\xff" * before + b"hunter2!" + b"-" * before)
    (tmp_path / "clean.log").write_text("hunter1!")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "junit.xml").write_text("<a>hunter2!</a>")
    (tmp_path / "secret.tar.gz").write_bytes(gzip.compress(b"." * 100 + b"hunter2!"))
    (tmp_path / "clean.tar.gz").write_bytes(gzip.compress(b"hunter1!"))
    (tmp_path / "broken.tar.gz").write_bytes(gzip.compress(bytes(os.urandom(999)))[:500])
    outside = tmp_path.parent / "outside"
    outside.write_text("hunter2!")
    (tmp_path / "link").symlink_to(outside)
    notes = redact_folder(tmp_path)
    for before in range(60, 80):
        content = (tmp_path / f"{before}.log").read_bytes()
        assert content == b"\xff" * before + b"***" + b"-" * before
    assert (tmp_path / "folder" / "junit.xml").read_text() == "<a>***</a>"
    assert (tmp_path / "clean.log").read_text() == "hunter1!"
    assert outside.read_text() == "hunter2!"
    assert not (tmp_path / "secret.tar.gz").exists()
    assert (tmp_path / "clean.tar.gz").exists()
    assert (tmp_path / "broken.tar.gz").exists()
    assert "a secret value was hidden in folder/junit.xml" in notes
    removed = "secret.tar.gz was removed from the results, as it may hold a secret value"
    assert removed in notes
    assert len(notes) == 22


def test_compressed_files_that_are_too_large_to_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "CHUNK", 64)
    monkeypatch.setattr(redaction, "MOST_PIECES", 5)
    hide_values(["hunter2!"])
    for name, size in {"first.gz": 100, "large.gz": 257, "last.gz": 1}.items():
        (tmp_path / name).write_bytes(gzip.compress(b"." * size))
    redact_folder(tmp_path)
    # One limit for all: 4,000 files that each fill it would take a day.
    assert [path.name for path in tmp_path.iterdir()] == ["first.gz"]


def test_a_deep_folder_does_not_end_the_search(tmp_path: Path) -> None:
    hide_values(["hunter2!"])
    (tmp_path / "z.log").write_text("hunter2!")
    make_deep_folder(tmp_path)
    try:
        assert redact_folder(tmp_path) == ["a secret value was hidden in z.log"]
    finally:
        remove_folder(tmp_path / "ddd")
