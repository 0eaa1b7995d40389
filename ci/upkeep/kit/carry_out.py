"""Carries out the steps of a kit, each as a command of this program with a log of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import IO, cast

from ci.errors import CiError, ExitCode
from ci.model.platforms import PLATFORMS
from ci.plan.network import folder_word
from ci.store.folder import RESULTS_FILE, read_results
from ci.upkeep.bundle.unpack import OpenBundle
from ci.upkeep.kit import document as names
from ci.upkeep.kit.document import KitDocument
from ci.upkeep.kit.steps import CONTRACT, ENV, FULL, KitStep, KitStepOutcome
from ci.util.files import PROGRAM_ROOT
from ci.util.interpreters import find_vendors
from ci.util.process import handle_interrupts, inherited_environment, run
from ci.util.terminal import show
from ci.util.text import first_line

LOOK_S = 60.0  # for a tool that only prints a version
TAKE_BUNDLE = ("run", "doctor")  # commands that unpack the bundle themselves
_ERROR = "error: "  # as the program begins a message
_TORCH = "import torch; print('torch', torch.__version__, torch.version.cuda or '')"


@dataclass(frozen=True, kw_only=True)
class KitRun:
    """A kit on this machine, with its sources unpacked."""

    kit: Path
    document: KitDocument
    bundle: OpenBundle
    report: Path
    python: str | None  # that of the vendor

    @property
    def results(self) -> Path:
        return self.report / "results"

    def carry_out(self, step: KitStep, earlier: Sequence[KitStepOutcome]) -> KitStepOutcome:
        """Carry out a step; its output goes to the terminal and to its log."""
        start, before = monotonic(), self._runs()
        command = [sys.executable, "-m", "ci", *step.words, *self._paths(step, earlier)]
        path = self.report / f"{step.name}.log"
        with path.open("w", encoding="utf-8") as log:
            if step.name == ENV:
                _write(log, machine_text(self.document.platform, self.python))
            code = _tee(command, log, self._environment(step))
        new = sorted(self._runs() - before)
        return KitStepOutcome(
            step=step.name,
            exit_code=code,
            seconds=round(monotonic() - start, 1),
            run_id=new[-1] if new else None,
            note=self._note(new[-1]) if new else _error_in(path),
        )

    def _runs(self) -> set[str]:
        return {it.parent.name for it in self.results.glob(f"*/{RESULTS_FILE}")} - {"latest"}

    def _paths(self, step: KitStep, earlier: Sequence[KitStepOutcome]) -> Iterator[str]:
        """Yield the options that name folders and files of this machine."""
        yield from ("--results", str(self.results))
        if step.words[0] in TAKE_BUNDLE:
            yield from ("--bundle", str(self.kit / names.BUNDLE))
        else:
            yield from ("--config", str(self.bundle.project.path))
        if step.name == CONTRACT:
            yield from ("--output", str(self.report / "contract.yaml"))
            full = [it.run_id for it in earlier if it.step == FULL and it.run_id]
            if full:  # the newest run may be one of another step
                yield from ("--run", full[-1])

    def _environment(self, step: KitStep) -> dict[str, str]:
        wheels = folder_word(self.kit / names.WHEELS)
        named = {f"INFINI_CI_PYTHON_{self.document.platform.upper()}": self.python}
        if step.words[0] not in TAKE_BUNDLE:
            named["INFINI_CI_SITE"] = str(self.bundle.folder / "site" / "ci.site.yaml")
        return {
            **{name: value for name, value in named.items() if value},
            **inherited_environment(),
            "PYTHONPATH": str(PROGRAM_ROOT),
            "PYTHONUNBUFFERED": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": wheels,
        }

    def _note(self, run_id: str) -> str:
        """Return what pytest's summary, or the verdict, says of a run."""
        try:
            result = read_results(self.results / run_id / RESULTS_FILE)
            row = result.platform(self.document.platform)
        except CiError as error:
            return first_line(str(error))
        if row.pytest is not None and row.pytest.summary:
            return row.pytest.summary
        return row.verdict.evidence[0].text if row.verdict.evidence else str(row.verdict.product)


def _error_in(log: Path) -> str:
    """Return the first error that a command printed, if there is one."""
    with log.open(encoding="utf-8") as lines:
        errors = (it.removeprefix(_ERROR).strip() for it in lines if it.startswith(_ERROR))
        return next(errors, "")


def machine_text(platform: str, python: str | None) -> str:
    """Return what this machine says of itself, one section for each program that it has."""
    device = PLATFORMS[platform].devices
    tools = [["uname", "-a"], ["cat", "/etc/os-release"], ["lscpu"], ["free", "-m"], ["df", "-h"]]
    tools += [[it, "--version"] for it in ("c++", "cmake", "ninja", "git")]
    if device is not None:
        tools += [[it] for it in [device.management] if it]
        tools += [[it, "--version"] for it in [device.compiler] if it]
    if torch := python or find_vendors():
        tools.append([torch, "-c", _TORCH])
    return "\n".join(map(_answer, tools))


def _answer(command: Sequence[str]) -> str:
    title = f"$ {' '.join(command)}\n"
    try:
        # A module of the current folder, such as torch.py, would be imported first.
        done = run(command, cwd=Path("/"), check=False, timeout_s=LOOK_S)
    except CiError as error:
        return f"{title}{first_line(str(error))}\n"
    return f"{title}{done.stdout}{done.stderr}"


def _write(log: IO[str], text: str) -> None:
    log.write(text)
    log.flush()


def _tee(command: Sequence[str], log: IO[str], environment: Mapping[str, str]) -> int:
    """Run a command of this program; return its exit code.

    It is in this process's group: Ctrl-C reaches it, and it ends its stages by itself.
    """
    process = subprocess.Popen(
        list(command),
        env={**environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:  # which only this process got
            process.terminate()

    with handle_interrupts(pass_on), cast(IO[str], process.stdout) as output:
        for line in output:
            show(line, end="")
            _write(log, line)
        code = process.wait()
    return code if code >= 0 else ExitCode.INFRASTRUCTURE
