"""Passwords in addresses, hidden wherever a text is kept or shown."""

from __future__ import annotations

import re

# To the last @ of the word, as passwords hold @ and / too: rather too much than too little.
# An engine's error can quote an address as it is written inside of another, percent-encoded.
# A user whom ssh logs in is no secret, and who reads of an engine wants to know the whole address.
_CREDENTIALS = re.compile(
    r"(?<=://)(?<!ssh://)\S+(?=@)|(?<=ssh://)[^\s@:]*:\S*(?=@)|(?<=%3A%2F%2F)\S+(?=@|%40)",
    re.IGNORECASE,
)


def mask_credentials(text: str) -> str:
    """Hide the ``user:password`` of every address in ``text``; of ssh's only with a password."""
    return _CREDENTIALS.sub("***", text)
