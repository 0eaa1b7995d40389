"""How the agent and its judge name the wheels and source distributions of a run."""

from __future__ import annotations

import re

KEPT = "dist"  # the folder in a platform's results
WHEEL = "{wheel}"  # in a command: each wheel that stages made, or that the run was given
SDIST = "{sdist}"  # in a command: the source distribution that the run was given
WHEEL_SUFFIX = ".whl"
MOST_DISTRIBUTIONS = 100  # of a platform
LONGEST_FILE = 200  # characters; a real name has 60
# What the formats of wheels and source distributions allow in a name.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.(whl|tar\.gz|zip)", re.ASCII)


def is_distribution(name: str) -> bool:
    """Whether a file's name is that of a wheel or a source distribution."""
    return len(name) <= LONGEST_FILE and FILE_NAME.fullmatch(name) is not None
