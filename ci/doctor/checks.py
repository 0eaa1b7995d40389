"""Checks are carried out all at once, each within its own time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Thread
from time import monotonic

from ci.doctor.findings import of_error
from ci.engines.sdk_errors import ERRORS, explain
from ci.errors import CiError, InfrastructureError
from ci.findings import Finding, unknown

REQUEST_S = 5.0  # one question over the network
CHECK_S = 8.0  # one check


@dataclass(frozen=True, kw_only=True)
class Check:
    """``look`` gathers what there is to know about ``subject``."""

    subject: str
    look: Callable[[], Iterable[Finding]]
    limit_s: float = CHECK_S


class _Worker(Thread):
    """One check; a thread that nobody waits for does not keep the program from ending."""

    def __init__(self, check: Check) -> None:
        super().__init__(daemon=True)
        self.check = check
        self.findings: list[Finding] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        subject = self.check.subject
        try:
            for found in self.check.look():
                self.findings.append(found)
        except CiError as error:
            self.findings += of_error(subject, error)
        except ERRORS as error:
            self.findings += of_error(subject, InfrastructureError(explain(error)))
        except BaseException as error:
            self.error = error


def carry_out(checks: Sequence[Check]) -> list[Finding]:
    """Carry out ``checks`` at the same time; the findings come in their order."""
    workers = [_Worker(check) for check in checks]
    start = monotonic()
    for worker in workers:
        worker.start()
    findings: list[Finding] = []
    for worker in workers:
        worker.join(max(0.0, start + worker.check.limit_s - monotonic()))
        findings += _result(worker)
    return findings


def _result(worker: _Worker) -> Iterable[Finding]:
    if worker.is_alive():
        took = f"no answer within {worker.check.limit_s:g} s"
        return [*worker.findings, unknown(worker.check.subject, took)]
    if worker.error is not None:
        raise worker.error
    return worker.findings
