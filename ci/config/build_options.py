"""Do a platform's build options mean that platform? Asked before an hour is spent on a build.

A project without options of these names has nothing here that could be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ci.platforms import PLATFORMS

# What scikit-build-core and setuptools' CMake extensions hand to CMake.
VARIABLES = ("SKBUILD_CMAKE_DEFINE", "SKBUILD_CMAKE_ARGS", "CMAKE_ARGS")
DETECTION = "AUTO_DETECT_DEVICES"
_OPTIONS = {f"WITH_{name.upper()}": name for name in PLATFORMS}
_GIVEN = re.compile(
    rf"(?:^|;|\s|-D)\s*(?P<name>{'|'.join((*_OPTIONS, DETECTION))})(?::\w+)?=(?P<value>[^;\s\"']*)"
)
_ON = frozenset({"ON", "1", "TRUE", "YES", "Y"})  # to CMake, in any case


def contradictions(platform: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that builds for something else, with what was expected of it."""
    options = {name: list(_given(environment[name])) for name in VARIABLES if name in environment}
    own = f"WITH_{platform.upper()}"
    said = dict(pair for pairs in options.values() for pair in pairs)
    for variable, pairs in options.items():
        for name, is_on in pairs:
            if is_on and _OPTIONS.get(name, platform) not in (platform, "cpu"):
                yield variable, f"build option {own}=ON for this platform, not {name}=ON"
    if any(name in said for name in _OPTIONS) and not said.get(own, said.get(DETECTION, True)):
        variable = next(name for name, pairs in options.items() if pairs)
        yield variable, f"build option {own}=ON for this platform"


def _given(text: str) -> Iterator[tuple[str, bool]]:
    for match in _GIVEN.finditer(text):
        yield match["name"], match["value"].upper() in _ON
