"""What pip's own configuration files say about this site's package index.

Many sites set up a machine with an ``/etc/pip.conf`` and no environment variable at all.
pip on this machine obeys it, so the pip in a container, which cannot see the file, has to
be told.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping

from ci.config import NetworkConfig
from ci.process import ProcessError, run

FIELDS: Mapping[str, str] = {
    "index-url": "pip_index_url",
    "extra-index-url": "pip_extra_index_url",
    "trusted-host": "pip_trusted_host",
    "find-links": "pip_find_links",
    "cert": "ca_bundle",
}
TIMEOUT_S = 30


def read_pip_settings() -> NetworkConfig:
    """Ask this Python's pip; empty where it has none."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        return parse_pip_settings(run(command, timeout_s=TIMEOUT_S).stdout)
    except ProcessError:
        return NetworkConfig()


def parse_pip_settings(listing: str) -> NetworkConfig:
    """Parse ``pip config list``: lines such as ``global.index-url='https://…'``.

    Environment variables are listed too, but read elsewhere. Indexes that are folders of
    this machine are left out: a container cannot see them.
    """
    found: dict[str, str] = {}
    for line in listing.splitlines():
        key, _, literal = line.partition("=")
        section, _, option = key.partition(".")
        field = FIELDS.get(option)
        if field is None or section not in ("global", "install"):
            continue
        words = str(ast.literal_eval(literal)).split()
        if field.endswith("index_url"):
            words = [word for word in words if not word.startswith("file:")]
        if words:
            found[field] = " ".join(words)
    return NetworkConfig.model_validate(found)
