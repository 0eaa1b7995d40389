"""The release-validation orchestrator: configuration to plan to engine to verdict to table."""

__version__ = "0.1.0"
