"""The allowlist: which ATen operators are generated."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from codegen.errors import GenerationError

_KEYS = ("operators", "excluded")


@dataclass(frozen=True, kw_only=True)
class Allowlist:
    """A parsed allowlist; ``lines`` says where each name, excluded or not, stands."""

    path: Path
    names: tuple[str, ...]
    excluded: dict[str, str]  # name -> reason
    lines: dict[str, int]


def load_allowlist(path: Path) -> Allowlist:
    """Reads and checks an allowlist; raises ``GenerationError`` with every finding."""
    try:
        root = yaml.compose(path.read_bytes(), Loader=yaml.SafeLoader)
    except OSError as error:
        raise GenerationError(
            f"{path}: {error.strerror}; expected an allowlist of operators"
        ) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise GenerationError(f"{path}:{line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:  # not UTF-8, a control character, a bomb
        raise GenerationError(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    return _Reader(path).read(root)


class _Reader:
    """Collects all findings of one file before it raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._findings: list[str] = []

    def read(self, root: yaml.Node | None) -> Allowlist:
        sections = self._sections(root)
        names = self._names(sections.get("operators"))
        excluded = self._reasons(sections.get("excluded"))
        for name in names.keys() & excluded.keys():
            self._report(names[name], f"'{name}' is both listed and excluded")
        if not names:
            self._report(1, "expected at least one name under 'operators'")
        if self._findings:
            raise GenerationError("\n".join(self._findings))
        return Allowlist(
            path=self._path,
            names=tuple(names),
            excluded={name: reason for name, (reason, _) in excluded.items()},
            lines=names | {name: line for name, (_, line) in excluded.items()},
        )

    def _report(self, line: int, text: str) -> None:
        self._findings.append(f"{self._path}:{line}: {text}")

    def _sections(self, root: yaml.Node | None) -> dict[str, yaml.Node]:
        if not isinstance(root, yaml.MappingNode):
            self._report(1, f"expected a mapping with the keys {', '.join(_KEYS)}")
            return {}
        sections: dict[str, yaml.Node] = {}
        for key, value in root.value:
            if not _is_plain(key, "str") or key.value not in _KEYS:
                hint = _nearest(str(key.value), _KEYS)
                self._report(_line(key), f"unknown key {_shown(key)}{hint}")
            elif key.value in sections:
                self._report(_line(key), f"key '{key.value}' stands twice")
            else:
                sections[key.value] = value
        return sections

    def _names(self, node: yaml.Node | None) -> dict[str, int]:
        if node is None:
            return {}
        if not isinstance(node, yaml.SequenceNode) or not _is_plain(node, "seq"):
            self._report(_line(node), "operators: expected a list of ATen base names")
            return {}
        names: dict[str, int] = {}
        previous = ""
        for item in node.value:
            if not _is_plain(item, "str"):
                self._report(_line(item), f"operators: got {_shown(item)}, expected a name")
                continue
            if item.value in names:
                self._report(_line(item), f"'{item.value}' stands twice")
            elif item.value < previous:
                self._report(_line(item), f"'{item.value}' belongs before '{previous}'")
            names[item.value] = _line(item)
            previous = item.value
        return names

    def _reasons(self, node: yaml.Node | None) -> dict[str, tuple[str, int]]:
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode) or not _is_plain(node, "map"):
            self._report(_line(node), "excluded: expected a mapping from names to reasons")
            return {}
        reasons: dict[str, tuple[str, int]] = {}
        for key, value in node.value:
            if not _is_plain(key, "str"):
                self._report(_line(key), f"excluded: got {_shown(key)}, expected a name")
            elif not _is_plain(value, "str") or not value.value:
                self._report(_line(value), f"excluded: '{key.value}' needs a reason")
            elif key.value in reasons:
                self._report(_line(key), f"excluded: '{key.value}' stands twice")
            else:
                reasons[key.value] = (value.value, _line(key))
        return reasons


def _is_plain(node: yaml.Node, tag: str) -> bool:
    """True for a node of a type of YAML's own: ``str``, ``seq`` or ``map``."""
    return bool(node.tag == f"tag:yaml.org,2002:{tag}")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shown(node: Any) -> str:
    return f"'{node.value}'" if isinstance(node, yaml.ScalarNode) else f"a {node.id}"


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{matches[0]}'?" if matches else ""


def check_known(allowlist: Allowlist, known: Iterable[str]) -> None:
    """Raises ``GenerationError`` naming every listed name that this torch does not have."""
    known = set(known)
    findings = [
        f"{allowlist.path}:{allowlist.lines[name]}: ATen has no out= or in-place operator "
        f"'{name}'{_nearest(name, known)}"
        for name in (*allowlist.names, *allowlist.excluded)
        if name not in known
    ]
    if findings:
        raise GenerationError("\n".join(findings))
