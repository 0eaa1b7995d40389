"""Load configuration strictly: report all findings of a file at once, with line and field."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ci.errors import ConfigError
from ci.facts.acceptance import AcceptedFile
from ci.model import schema
from ci.model.release import WaiverFile
from ci.plan.config import LIST_FORM, MAPPING_FORM, Config
from ci.plan.site import SiteConfig
from ci.util.invocation import PROGRAM_NAME
from ci.util.text import near_match
from ci.util.yaml import Document, FileFinding, Location, format_findings, read_document

ModelType = TypeVar("ModelType", bound=BaseModel)

# The expected value by pydantic's error type; for other types pydantic's message is used.
EXPECTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "missing": "a value; this key is required",
}

# Parts of pydantic's locations that are not in the file.
NO_PLACE = frozenset({"[key]", LIST_FORM, MAPPING_FORM})


def load_config(path: Path) -> Config:
    """Load ``ci.yaml``; raises ``ConfigError`` with all findings."""
    write = shlex.join([*PROGRAM_NAME.split(), "init", str(path.parent)])
    remedy = f"Name the configuration with --config FILE, or write one: {write}"
    return load_model(path, Config, remedy=remedy)


def load_site(path: Path) -> SiteConfig:
    """Load ``ci.site.yaml``; raises ``ConfigError`` with all findings."""
    return load_model(path, SiteConfig, remedy="Correct the variable INFINI_CI_SITE, or unset it.")


def load_accepted(path: Path) -> AcceptedFile:
    """Load ``ci-accepted.yaml``; raises ``ConfigError`` with all findings."""
    return load_model(path, AcceptedFile, remedy="Name the file of a project that has one.")


def load_waivers(path: Path) -> WaiverFile:
    """Load a file of waivers; raises ``ConfigError`` with all findings."""
    remedy = "Write it, or correct `release.waivers` in ci.yaml: docs/validate-a-release.md"
    return load_model(path, WaiverFile, remedy=remedy)


def load_model(path: Path, model: type[ModelType], *, remedy: str) -> ModelType:
    """Load a YAML file as a model; raises ``ConfigError`` with all findings.

    ``remedy`` is for a file that does not exist.
    """
    document = read_document(path, remedy=remedy)
    findings = list(document.findings)
    if document.data is not None or not findings:
        try:
            # Through JSON, since only there strict mode accepts a string for an enum member.
            config = model.model_validate_json(json.dumps(document.data))
        except ValidationError as error:
            findings += [_finding(detail, document, model) for detail in error.errors()]
    if findings:
        raise ConfigError(format_findings(findings, path.name))
    return config


def _finding(detail: ErrorDetails, document: Document, model: type[BaseModel]) -> FileFinding:
    """Convert a pydantic error to a finding with a readable text and its line."""
    context: Mapping[str, Any] = detail.get("ctx", {})
    location: Location = tuple(part for part in detail["loc"] if part not in NO_PLACE)
    location += tuple(context.get("at", ()))
    is_key = detail["loc"][-1:] == ("[key]",)
    value = location[-1] if is_key else _value_at(document.data, location)
    got, known = f"'{value}'" if is_key else _got(value), list(context.get("known", ()))
    message = detail["msg"].removeprefix("Input should be ")
    message = message.replace("String should have", "a string of")
    expected = EXPECTED.get(detail["type"], message[:1].lower() + message[1:])
    if detail["type"] == "extra_forbidden":
        got, value, known = "an unknown key", location[-1], _known_keys(model, location[:-1])
        expected = f"one of {', '.join(known)}"
    elif detail["type"] == "missing":
        got = "nothing"
    elif detail["type"] == "enum":
        expected = f"one of {context['expected']}"
        known = re.findall(r"'([^']+)'", context["expected"])
    elif detail["type"] == "string_pattern_mismatch":
        expected = f"a string that matches {context['pattern']}"
    text = f"got {got}, expected {expected}{near_match(value, known)}"
    return FileFinding(line=document.line_of(location), location=location, text=text)


def _got(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing (null)"
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return f"{json.dumps(value, ensure_ascii=False)} ({kinds[type(value)]})"


def _value_at(data: object, location: Location) -> object:
    for part in location:
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
    return data


def _known_keys(model: Any, location: Location) -> list[str]:
    """Return the keys of the model that ``model`` declares at ``location``."""
    for part in location:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[str(part)].annotation
        else:  # dict[key, value] and tuple[item, ...]: the type of the items
            model = get_args(model)[0 if isinstance(part, int) else -1]
        while get_origin(model) in (Annotated, Union, UnionType):  # and ``... | None``
            model = get_args(model)[0]
    return sorted(model.model_fields)


def schema_text() -> str:
    """Return the content of ``ci/schema.json``."""
    return schema.schema_text(Config, "validation", "ci.yaml")
