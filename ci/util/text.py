"""Make text from other programs fit to be stored and shown.

Test names, messages and file names may hold anything: unpaired surrogates (Python's substitute for
bytes of a file name that are not UTF-8), control characters, colors.
"""

from __future__ import annotations

import base64
import difflib
import html
import json
import math
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from ci.util.lines import parse

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
SHORT = 12  # characters of a commit that are shown
LONGEST_NAME = 500  # characters; a pytest node id repeats the parameters, which may be long texts
_UNUSUAL = re.compile(r"[^\t\n -~]")  # may be a control character
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def signal_name(number: int) -> str:
    """Return the name of a signal; a real-time signal has only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def make_storable(value: Any) -> Any:
    """Return ``value`` as databases and JSON can hold it.

    An unpaired surrogate is written as ``\\udce9``, and the NUL character, which PostgreSQL cannot
    store, as ``\\x00``. NaN and infinity, which JSON does not have, become ``None``.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode().replace("\0", r"\x00")
    if isinstance(value, dict):
        return {make_storable(key): make_storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [make_storable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def parse_json(text: str) -> Any:
    """Decode JSON within bounds; raises ``ValueError`` for other text."""
    return make_json_storable(text, parse(text))


def make_json_storable(text: str, value: Any) -> Any:
    """Make ``value`` storable, which was decoded from the JSON ``text``.

    Only escapes in ``text`` can produce characters that cannot be stored.
    """
    if "\\u" not in text:
        return value
    odd = "\\ud" in text or "\\uD" in text or "\\u0000" in text
    return make_storable(value) if odd else value


def near_match(name: object, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ``; did you mean 'cpu'?`` if one of ``known`` is close to ``name``, else ``""``."""
    if not isinstance(name, str):
        return ""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean '{matches[0]}'?" if matches else ""


def os_reason(error: OSError) -> str:
    """``Is a directory: results/x``: the message of a system, without its number for it.

    Of two files, as of a renaming, it names the target.
    """
    file = error.filename if error.filename2 is None else error.filename2
    return f"{error.strerror or error}" + ("" if file is None else f": {file}")


def commit_name(commit: str | None, *, dirty: bool = False) -> str:
    """``commit 0123456789ab with uncommitted changes``."""
    changes = " with uncommitted changes" if dirty else ""
    return f"commit {commit[:SHORT]}{changes}" if commit else "no commit"


def counted(count: int, noun: str) -> str:
    """``1 test``, ``2 tests``, ``3 processes``."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}" + ("" if count == 1 else plural)


def describe_unreadable(lines: int, longest: int) -> str:
    """``3 unreadable lines``, with the length of the ``longest`` if one was too long."""
    length = f", the longest of {counted(longest, 'byte')}" if longest else ""
    return counted(lines, "unreadable line") + length


def first_line(text: str) -> str:
    """Return the first line that is not blank, without the spaces around it; else ``""``."""
    return next((line for it in text.splitlines() if (line := it.strip())), "")


def shorten(text: str, most: int) -> str:
    """Return at most ``most`` characters of a text, and ``...`` if it has more."""
    return text if len(text) <= most else f"{text[:most]}..."


def shorten_middle(text: str, most: int) -> str:
    """Return at most ``most`` characters of a text, with ``...`` in place of a part.

    More of the end is kept: the beginning is often the path of a file.
    """
    if len(text) <= most:
        return text
    begin = (most - 3) // 3
    return f"{text[:begin]}...{text[begin + 3 - most :]}"


def join_names(names: Sequence[str], most: int = 5) -> str:
    """``a, b, c, d, e and 3 more``; long names are shortened."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shorten(it, LONGEST_NAME) for it in names[:most]) + more


def root_cause(error: BaseException) -> str:
    """Return the first cause of an error that quotes other errors."""
    reason: object = error
    while isinstance(reason, BaseException):
        last = reason
        reason = getattr(reason, "reason", None) or (reason.args[0] if reason.args else None)
    return str(last)


def strip_controls(text: str) -> str:
    """Remove colors, and replace other characters that a terminal would obey."""
    return _UNUSUAL.sub(_printable, _ESCAPE_SEQUENCE.sub("", text))


def _printable(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    return " " if character.isspace() else _REPLACEMENT


MASK = "***"
SHORTEST_HIDDEN = 6  # characters; shorter values occur in ordinary text

_FLAGS = re.IGNORECASE | re.DOTALL
# Mask up to the last @ of the word, since passwords may hold @ and /.
# An engine's error can quote an address inside another one, percent-encoded.
# The user name in an ssh address is not a secret, and readers need the whole address.
# Each pattern is searched only in words that its end was found in, up to the last one: in others,
# trying every `://` takes minutes for a word of 100 KB.
_WORD = re.compile(r"\S{5,}")  # an address with a user has at least `://u@`
_CREDENTIALS = (
    (
        re.compile(r".*@", re.DOTALL),
        re.compile(r"(?<=://)(?<!ssh://).+(?=@\Z)|(?<=ssh://)[^@:]*:.*(?=@\Z)", _FLAGS),
    ),
    (
        re.compile(r".*(?:@|%40)", re.DOTALL),
        re.compile(r"(?<=%3A%2F%2F).+(?=(?:@|%40)\Z)", _FLAGS),
    ),
)


_hidden: list[str] = []  # every form of every hidden value, the longest first


def hide_values(values: Iterable[str]) -> None:
    """Let ``mask_credentials`` also hide these values, in place of those of an earlier call.

    Each line of a value counts as one value, as tools print them line by line. Hidden are also its
    URL-encoded, HTML, JSON and Python forms, and base64 of any text around it. Values of fewer than
    ``SHORTEST_HIDDEN`` characters are not hidden.
    """
    lines = (line.strip() for value in values for line in value.splitlines())
    forms = {form for line in lines if len(line) >= SHORTEST_HIDDEN for form in _forms(line)}
    _hidden[:] = sorted(forms, key=len, reverse=True)  # one form may begin with another


def hidden_forms() -> tuple[str, ...]:
    """Return every text that is hidden."""
    return tuple(_hidden)


def _forms(value: str) -> Iterator[str]:
    content = value.encode(errors="surrogateescape")
    yield from (value, quote(content), quote(content, safe=""), quote_plus(content))
    yield from (html.escape(value), html.escape(value, quote=False), repr(value)[1:-1])
    yield from (json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    for before in range(3):  # bytes of other text in the first group of three
        encoded = base64.b64encode(b"\0" * before + content).decode()
        # The first and the last characters also depend on the text around.
        own = encoded[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        yield from (own, own.replace("+", "-").replace("/", "_"))


def mask_credentials(text: str) -> str:
    """Hide known secret values, and ``user:password`` in every address.

    In an ssh address it is hidden only if it has a password.
    """
    for form in _hidden:
        text = text.replace(form, MASK)
    return _WORD.sub(_mask_word, text) if "@" in text or "%40" in text else text


def make_inert(text: str) -> str:
    """Hide credentials, and remove or replace what a terminal would obey.

    Credentials are searched twice: a color within a secret value hides it from the first search,
    and a control character that belongs to the value from the second.
    """
    return mask_credentials(strip_controls(mask_credentials(text)))


def _mask_word(found: re.Match[str]) -> str:
    word = found[0]
    for end, credentials in _CREDENTIALS:
        if until := end.match(word):
            word = credentials.sub(MASK, until[0], count=1) + word[until.end() :]
    return word
