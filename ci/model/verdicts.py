"""The verdict on a platform, and the evidence for it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from ci.model.fields import DocumentModel, Environment, Name, Text


class _Word(StrEnum):
    """A word of the documents: ``not_run``."""

    @property
    def shown(self) -> str:
        """``not run``."""
        return self.replace("_", " ")


class Product(_Word):
    """The verdict on the product."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"  # the run began, but its results prove neither of the above
    NOT_RUN = "not_run"

    @property
    def is_final(self) -> bool:
        """Whether the product was judged; otherwise `--resume` runs the platform again."""
        return self in (Product.PASSED, Product.FAILED)


class Harness(_Word):
    """How the machinery around the product ended: engine, container, agent, processes."""

    CLEAN = "clean"
    EXIT_AFTER_SUMMARY = "exit_after_summary"
    CRASHED = "crashed"
    OOM_KILLED = "oom_killed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    INFRASTRUCTURE = "infrastructure"


class Grade(StrEnum):
    """How certain a piece of evidence is."""

    FACT = "fact"
    LIKELY = "likely"
    UNKNOWN = "unknown"


class Evidence(DocumentModel):
    """One thing that was found: a reason for a verdict, or a note in the table."""

    grade: Grade
    """How sure it is: a fact, likely, or unknown."""
    text: Text
    """What was found, as a sentence."""
    code: Name | None = None
    """What kind of sentence it is; null in older results. The codes are stable."""
    parameters: Environment = Field(default_factory=dict)
    """What the sentence inserts into its text; of a list, at most 20 items."""


class Verdict(DocumentModel):
    """The verdicts on the product and on the harness, judged separately."""

    product: Product
    """Whether the library was built and passed its tests."""
    harness: Harness
    """What happened to the process, the container or the machine that ran the tests."""
    evidence: tuple[Evidence, ...]
    """The reasons for both."""

    @property
    def reason(self) -> str | None:
        """The text of the first evidence; results from elsewhere may have none."""
        return self.evidence[0].text if self.evidence else None
