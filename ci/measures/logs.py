"""What CMake and pip say of a build in a stage's log."""

from __future__ import annotations

import re
from collections.abc import Iterable

# From CMake 3.26 on; the lines before had no times.
_CONFIGURED = re.compile(r"\s*-- (?:Configuring|Generating) done \((\d{1,9}(?:\.\d{1,9})?)s\)\s*")
# pip puts what its subprocesses say further in.
_FOLDER = re.compile(r"Processing (?!.*\.(?:whl|zip|tar(?:\.\w+)?|tgz)\b).+\n?")
_WHEEL = re.compile(r"  Created wheel for \S+: filename=\S+ size=(\d{1,15}) .*\n?")


class BuildLog:
    """Gathers it from lines."""

    def __init__(self) -> None:
        self.configure_s: float | None = None
        self.wheel_bytes: int | None = None
        self._own_is_next = False

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if " done (" in line and (match := _CONFIGURED.fullmatch(line)):
                # Of all the projects and configurations.
                self.configure_s = (self.configure_s or 0.0) + float(match[1])
            elif _FOLDER.fullmatch(line):
                self._own_is_next = True
            elif self._own_is_next and (match := _WHEEL.fullmatch(line)):
                # pip builds what it was pointed at before what that depends on.
                self._own_is_next = False
                self.wheel_bytes = self.wheel_bytes or int(match[1])
