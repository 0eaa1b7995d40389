"""The JSON schema of ``ci.yaml``, generated from the models."""

from __future__ import annotations

import json

from ci.config.models import Config


def schema_text() -> str:
    """The content of ``ci/schema.json``."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
        "title": "ci.yaml",
    }
    return json.dumps(schema, indent=2) + "\n"
