"""Collect the wheels that the stages would download; runs inside an image, by its Python.

Arguments: a folder, requirements as JSON, and the arguments of every ``pip install`` as JSON.
pip itself reports what a command would install, so packages of the image are not collected.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PIP = [sys.executable, "-m", "pip"]


def missing_requirements(arguments: list[str]) -> list[str]:
    """Return the pinned requirements that the image lacks for a ``pip install``."""
    report = Path(FOLDER) / "report.json"
    options = ["--dry-run", "--report", str(report)]
    subprocess.run([*PIP, "install", *arguments, *options], check=True)
    found = json.loads(report.read_text(encoding="utf-8"))["install"]
    report.unlink()
    named = [item["metadata"] for item in found if "dir_info" not in item["download_info"]]
    return ["{name}=={version}".format(**metadata) for metadata in named]


FOLDER, requirements, commands = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
Path(FOLDER).mkdir()
pins = sorted({pin for arguments in commands for pin in missing_requirements(arguments)})
if pins:
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", FOLDER, *pins], check=True)
if requirements:
    subprocess.run([*PIP, "wheel", "--wheel-dir", FOLDER, *requirements], check=True)
