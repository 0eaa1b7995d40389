"""The formats that forges and CI systems read; the reports themselves take 0.5 s to import."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """A format of ``report`` that a forge or a CI system reads."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    BUILDKITE = "buildkite"
    JUNIT = "junit"
    CTRF = "ctrf"


PAGES = (Form.GITHUB, Form.GITLAB, Form.GITEA, Form.BUILDKITE)  # of Markdown
