"""Strict loading: every finding of a file at once, each with line, field and remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ci.errors import ConfigError
from ci.plan.config import LIST_FORM, MAPPING_FORM, Config, SiteConfig
from ci.util.text import near_match
from ci.util.yaml import Document, Finding, Location, read_document

ModelType = TypeVar("ModelType", bound=BaseModel)

# What a value should have been, by pydantic's error type; any other type explains itself.
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


def load_config(path: Path) -> Config:
    """Load ``ci.yaml``; raises ``ConfigError`` with all findings."""
    return _load(path, Config, remedy="Name the configuration with --config FILE.")


def load_site(path: Path) -> SiteConfig:
    """Load ``ci.site.yaml``; raises ``ConfigError`` with all findings."""
    return _load(path, SiteConfig, remedy="Correct the variable INFINI_CI_SITE, or unset it.")


def _load(path: Path, model: type[ModelType], *, remedy: str) -> ModelType:
    document = read_document(_read(path, remedy))
    config, findings = _validate(document, model)
    if config is None or findings:
        ordered = sorted(findings, key=lambda finding: (finding.line, str(finding.location)))
        raise ConfigError("\n".join(finding.render(path.name) for finding in ordered))
    return config


def _read(path: Path, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", remedy=remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def _validate(document: Document, model: type[ModelType]) -> tuple[ModelType | None, list[Finding]]:
    findings = list(document.findings)
    if document.data is None and findings:
        return None, findings
    try:
        # Through JSON, since only there strict mode accepts a string for an enum member.
        config = model.model_validate_json(json.dumps(document.data))
    except ValidationError as error:
        findings += [_finding(detail, document, model) for detail in error.errors()]
        return None, findings
    return config, findings


def _finding(detail: ErrorDetails, document: Document, model: type[BaseModel]) -> Finding:
    context: Mapping[str, Any] = detail.get("ctx", {})
    no_place = ("[key]", LIST_FORM, MAPPING_FORM)
    location: Location = tuple(part for part in detail["loc"] if part not in no_place)
    location += tuple(context.get("at", ()))
    value = _value_at(document.data, location)
    if detail["type"] == "extra_forbidden":
        known = _keys_of(_annotation_at(model, location[:-1]))
        expected = "one of " + ", ".join(known)
        text = f"got an unknown key, expected {expected}" + near_match(str(location[-1]), known)
    elif detail["loc"][-1:] == ("[key]",):
        known = list(context.get("known", ()))
        text = f"got '{location[-1]}', expected {detail['msg']}" + near_match(
            str(location[-1]), known
        )
    else:
        expected = _expected(detail)
        got = "nothing" if detail["type"] == "missing" else _got(value)
        text = f"got {got}, expected {expected}" + near_match(value, _choices(detail))
    return Finding(line=document.line_of(location), location=location, text=text)


def _expected(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "enum":
        return "one of " + str(context.get("expected"))
    if detail["type"] == "string_pattern_mismatch":
        return f"a string that matches {context.get('pattern')}"
    message = detail["msg"].removeprefix("Input should be ")
    return EXPECTED.get(detail["type"], message[:1].lower() + message[1:])


def _choices(detail: ErrorDetails) -> list[str]:
    context = detail.get("ctx", {})
    if detail["type"] == "enum":
        return re.findall(r"'([^']+)'", str(context.get("expected")))
    return list(context.get("known", ()))


def _got(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
    if value is None:
        return "nothing (null)"
    return f"{json.dumps(value, ensure_ascii=False)} ({kinds[type(value)]})"


def _value_at(data: object, location: Location) -> object:
    for part in location:
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
    return data


def _annotation_at(model: type[BaseModel], location: Location) -> Any:
    """The type that ``model`` declares at ``location``."""
    annotation: Any = model
    for part in location:
        annotation = _plain(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            annotation = annotation.model_fields[str(part)].annotation
        else:
            # dict[key, value] and tuple[item, ...]: the type of what is inside
            annotation = get_args(annotation)[0 if isinstance(part, int) else -1]
    return _plain(annotation)


def _plain(annotation: Any) -> Any:
    """Strip ``Annotated[...]`` and ``... | None``."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = get_args(annotation)[0]
    return annotation


def _keys_of(annotation: Any) -> list[str]:
    return sorted(annotation.model_fields)


def schema_text() -> str:
    """The content of ``ci/schema.json``."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
        "title": "ci.yaml",
    }
    return json.dumps(schema, indent=2) + "\n"
