"""Changes mounts, then becomes the command after ``--``. Run it in a mount namespace of its own."""

from __future__ import annotations

import argparse
import os
import subprocess


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--read-only", metavar="FOLDER", help="mount this folder read-only")
    parser.add_argument("--shared-memory", metavar="SIZE", help="limit /dev/shm to this size")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if folder := options.read_only:
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    if size := options.shared_memory:
        folder = "/dev/shm"  # noqa: S108 - the mount itself
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "shm", folder], check=True)
    os.execvp(options.command[0], options.command)  # noqa: S606


if __name__ == "__main__":
    main()
