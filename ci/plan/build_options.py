"""Build options in the environment of a platform."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ci.model.platforms import PLATFORMS

# Variables that scikit-build-core and setuptools' CMake extensions pass to CMake.
VARIABLES = ("SKBUILD_CMAKE_DEFINE", "SKBUILD_CMAKE_ARGS", "CMAKE_ARGS")
DETECTION = "AUTO_DETECT_DEVICES"
_OPTIONS = {f"WITH_{name.upper()}": name for name in PLATFORMS}
_GIVEN = re.compile(
    rf"(?:^|;|\s|-D)\s*(?P<name>{'|'.join((*_OPTIONS, DETECTION))})(?::\w+)?=(?P<value>[^;\s\"']*)"
)
_ON = frozenset({"ON", "1", "TRUE", "YES", "Y"})  # for CMake, upper or lower case


def contradictions(platform: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that builds for another device, with the expected build option."""
    options = [
        (variable, match["name"], match["value"].upper() in _ON)
        for variable in VARIABLES
        for match in _GIVEN.finditer(environment.get(variable, ""))
    ]
    own = f"WITH_{platform.upper()}"
    for variable, name, is_on in options:
        if is_on and _OPTIONS.get(name, platform) not in (platform, "cpu"):
            yield variable, f"build option {own}=ON for this platform, not {name}=ON"
    settings = {name: is_on for _, name, is_on in options}
    if _OPTIONS.keys() & settings and not settings.get(own, settings.get(DETECTION, True)):
        yield options[0][0], f"build option {own}=ON for this platform"
