"""Runs a compiler or linker and appends its cost to a file, as one line of JSON.

``compiler_launcher.py FILE COMMAND...``: CMake puts it before every command through
``CMAKE_CXX_COMPILER_LAUNCHER``. Only the command's own usage is recorded, without the start of this
program (about 20 ms). It uses only the standard library, so that it starts without site.
"""

import json
import os
import resource
import subprocess
import sys
import time


def main(log: str, command: list[str]) -> int:
    start = time.monotonic()
    exit_code = subprocess.run(command, check=False).returncode
    wall = time.monotonic() - start
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = {
        "output": command[command.index("-o") + 1] if "-o" in command else "",
        "compiles": "-c" in command,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "wall_s": wall,
        "peak_rss_mb": usage.ru_maxrss * 1024 / 1e6,
    }
    # A single write in append mode: lines of parallel processes do not mix.
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, (json.dumps(record) + "\n").encode())
    os.close(descriptor)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
