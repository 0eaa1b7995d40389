"""Run ``python -m ci``, or report how to install missing dependencies.

An unexpected error is a fault of this program and exits with 3. Python itself would exit with 1,
which here means a failure of the product.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback

DEPENDENCIES = (
    "alembic",
    "argcomplete",
    "changeforest",
    "docker",
    "filelock",
    "jinja2",
    "numpy",
    "pydantic",
    "requests",
    "rich",
    "sqlalchemy",
    "yaml",
)
REINSTALL = "Install it again, with its dependencies: pip install --force-reinstall infini-ci"
REMEDY = """\
`python3 noxfile.py -s build-cpu` installs what it needs by itself. Or, in a virtual
environment with pip 25.1 or newer: `python -m pip install --group ci`"""
# Of the standard library: Windows has none of them.
UNIX_MODULES = ("fcntl", "termios", "tty")
UNIX_REMEDY = "On Windows, install it and run it in WSL 2: https://learn.microsoft.com/windows/wsl"
# Imported modules and loaded results live until the program ends. Python's default collects garbage
# after every 700 new objects: searching them again and again took 10 % of the time of `compare`,
# and 4 % with 50,000. `compare` and `history` make fewer than this, even of 2,000 runs.
OBJECTS_BETWEEN_COLLECTIONS = 200_000
LIBRARY_SETTINGS = {
    # Else it looks for plugins in the metadata of every installed package: 5 % of `compare`.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    # Else NumPy starts a thread per core. They wait for work that never comes, but not idly: 10 %.
    "OPENBLAS_NUM_THREADS": "1",
}
COMPLETION_VARIABLE = "_ARGCOMPLETE"  # set by a shell that asks how to complete a command line
INFRASTRUCTURE = 3  # an ExitCode: importing it may be what fails


def start() -> int:
    """Run the program, and return its exit code."""
    if not __debug__:  # `schema` takes its descriptions from docstrings, which -OO removes
        if os.environ.pop("PYTHONOPTIMIZE", ""):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
        print("error: Python got -O, which skips assertions and docstrings", file=sys.stderr)
        print("Run: python -m ci", file=sys.stderr)
        return 2
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        if COMPLETION_VARIABLE in os.environ:
            from ci.commands.completion import answer_shell

            answer_shell()
        from ci.cli import main
        from ci.util.process import set_for_this_program

        set_for_this_program(LIBRARY_SETTINGS)

        # A CI system cancels a job with SIGTERM. Treat it as an interrupt: clean up, keep results.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        code = main()  # each command imports its own dependencies
        gc.freeze()  # the process ends here: a last search for garbage took 12 % of `history`
        return code
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in UNIX_MODULES:
            print(f"error: this program needs Linux or macOS: {error}", file=sys.stderr)
            print(UNIX_REMEDY, file=sys.stderr)
            return INFRASTRUCTURE
        if missing not in DEPENDENCIES:
            return _report_fault(error)
        print(f"error: the Python package '{missing}' is not installed", file=sys.stderr)
        from ci.util.files import IS_INSTALLED

        print(REINSTALL if IS_INSTALLED else REMEDY, file=sys.stderr)
        return INFRASTRUCTURE
    except KeyboardInterrupt:  # during an import
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return _report_fault(error)


def _report_fault(error: Exception) -> int:
    """Report an internal error with its location and traceback."""
    what = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    text = f"error: internal error of this program: {what}{where}\n"
    text += "Please report it with the traceback below. It is not a failure of the product.\n"
    text += "".join(traceback.format_exception(error))
    try:
        from ci.util.text import mask_credentials

        text = mask_credentials(text)
    except Exception as second:  # the failed import may be this one
        text = f"error: internal error of this program: {what}{where} ({type(second).__name__})\n"
    print(text, end="", file=sys.stderr)
    return INFRASTRUCTURE


if __name__ == "__main__":
    sys.exit(start())
