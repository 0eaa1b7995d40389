"""The release-validation orchestrator: configuration to plan to engine to verdict to table."""
