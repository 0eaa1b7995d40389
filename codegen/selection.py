"""Which operators are built: a selection file of ATen's, narrowed by the environment.

The file is about ATen's operators alone, the environment about those written by hand too.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from codegen.errors import GenerationError, nearest
from codegen.inputs import PREDEFINED, SELECTION_VARIABLE, Inputs, names_a_file
from codegen.model import Choice, Omission, Schemas, SkipReason
from codegen.nodes import is_plain, line_of

ALL = "all"
_KEYS = ("operators", "excluded")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An ATen base name or a pattern of them, where it stands, and why it is excluded."""

    text: str
    where: str  # "codegen/torch_ops.yaml:3", or the name of the variable
    reason: str = ""

    @property
    def is_pattern(self) -> bool:
        return not set(self.text).isdisjoint("*?[")

    @property
    def is_typed(self) -> bool:
        """Whether it is set in the variable itself, rather than in a file."""
        return self.where == SELECTION_VARIABLE

    def matches(self, known: Collection[str]) -> list[str]:
        """The names that this entry stands for."""
        if self.is_pattern:
            return fnmatch.filter(known, self.text)
        return [self.text] if self.text in known else []


@dataclass(frozen=True, kw_only=True)
class Selection:
    """One selection: a file, or what was typed into the variable."""

    origin: str
    included: tuple[Entry, ...] | None  # None: all
    excluded: tuple[Entry, ...] = ()

    def names(self, known: Collection[str]) -> set[str]:
        """Those of the ``known`` names that are selected."""
        included = known if self.included is None else _matches(self.included, known)
        return set(included) - _matches(self.excluded, known)


def _matches(entries: Iterable[Entry], known: Collection[str]) -> set[str]:
    return {name for entry in entries for name in entry.matches(known)}


def load_selection(path: Path) -> Selection:
    """Reads and checks a selection file; raises ``GenerationError`` with every finding."""
    try:
        root = yaml.compose(path.read_bytes(), Loader=yaml.SafeLoader)
    except OSError as error:
        raise GenerationError(
            f"{path}: {error.strerror}; expected a selection of operators"
        ) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        # To YAML a leading asterisk is a reference to an anchor.
        is_alias = "alias" in f"{error.context} {error.problem}"
        hint = "; a pattern that begins with * stands in quotes" if is_alias else ""
        raise GenerationError(f"{path}:{line}: not YAML: {error.problem}{hint}") from None
    except (yaml.YAMLError, RecursionError) as error:  # not UTF-8, a control character, a bomb
        raise GenerationError(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    return _Reader(path).read(root)


def parse_variable(value: str) -> Selection:
    """The selection that a value of ``INFINI_OPS_TORCH_OPS`` stands for.

    Names, patterns and predefined selections with commas or spaces between them, ``all``, or the
    path of a file.
    """
    if names_a_file(value):
        try:
            return load_selection(Path(value))
        except GenerationError as error:
            raise GenerationError(f"{SELECTION_VARIABLE}: {error}") from None
    texts = value.replace(",", " ").split()
    if texts in ([], [ALL]):
        return Selection(origin=SELECTION_VARIABLE, included=None)
    included: list[Entry] = []
    excluded: list[Entry] = []
    for text in texts:
        if (PREDEFINED / f"{text}.yaml").is_file():
            predefined = load_selection(PREDEFINED / f"{text}.yaml")
            included += predefined.included or [Entry(text="*", where=predefined.origin)]
            excluded += predefined.excluded
        else:
            included.append(Entry(text=text, where=SELECTION_VARIABLE))
    return Selection(origin=SELECTION_VARIABLE, included=tuple(included), excluded=tuple(excluded))


def hand_written_selection(variable: str, known: Collection[str], *, alone: bool) -> list[str]:
    """The ``known`` hand-written operators that a value of the variable selects.

    A build without torch has them ``alone``. What is typed then has to be one of them: raises
    ``GenerationError`` where it is not.
    """
    selection = parse_variable(variable)
    names = selection.names(known)
    unknown = [each for each in selection.included or () if not each.matches(known)]
    if typed := [entry.text for entry in unknown if alone and entry.is_typed]:
        findings = (
            f"{SELECTION_VARIABLE}: no operator written by hand is '{text}', and this build has no "
            f"torch{nearest(text.strip('*'), known)}"
            for text in typed
        )
        raise GenerationError("\n".join(findings))
    if alone and not names:
        raise GenerationError(
            f"{SELECTION_VARIABLE}: got '{variable}', which leaves nothing to build without torch; "
            f"expected one of {', '.join(sorted(known))}"
        )
    return sorted(names)


class _Reader:
    """Collects all findings of one file before it raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._findings: list[str] = []

    def read(self, root: yaml.Node | None) -> Selection:
        sections = self._sections(root)
        included = self._included(sections.get("operators"))
        excluded = self._excluded(sections.get("excluded"))
        unwanted = {entry.text for entry in excluded}
        for entry in included or ():
            if entry.text in unwanted:
                self._findings.append(f"{entry.where}: '{entry.text}' is both listed and excluded")
        if self._findings:
            raise GenerationError("\n".join(self._findings))
        return Selection(origin=str(self._path), included=included, excluded=excluded)

    def _report(self, node: yaml.Node | None, text: str) -> None:
        line = line_of(node) if node else 1
        self._findings.append(f"{self._path}:{line}: {text}")

    def _entry(self, node: yaml.Node, reason: str = "") -> Entry:
        return Entry(text=node.value, where=f"{self._path}:{line_of(node)}", reason=reason)

    def _sections(self, root: yaml.Node | None) -> dict[str, yaml.Node]:
        if not isinstance(root, yaml.MappingNode):
            self._report(None, f"expected a mapping with the keys {', '.join(_KEYS)}")
            return {}
        sections: dict[str, yaml.Node] = {}
        for key, value in root.value:
            if not is_plain(key, "str") or key.value not in _KEYS:
                hint = nearest(str(key.value), _KEYS)
                self._report(key, f"unknown key {_shown(key)}{hint}")
            elif key.value in sections:
                self._report(key, f"key '{key.value}' stands twice")
            else:
                sections[key.value] = value
        return sections

    def _included(self, node: yaml.Node | None) -> tuple[Entry, ...] | None:
        if node is None or node.value in ("", []):
            self._report(node, "expected 'operators: all', or at least one name under 'operators'")
            return ()
        if is_plain(node, "str") and node.value == ALL:
            return None
        if not is_plain(node, "seq"):
            self._report(node, f"operators: expected '{ALL}' or a list of ATen names and patterns")
            return ()
        entries: dict[str, Entry] = {}
        previous = ""
        for item in node.value:
            if not is_plain(item, "str"):
                self._report(item, f"operators: got {_shown(item)}, expected a name")
                continue
            if item.value in entries:
                self._report(item, f"'{item.value}' stands twice")
            elif item.value < previous:
                self._report(item, f"'{item.value}' belongs before '{previous}'")
            entries[item.value] = self._entry(item)
            previous = item.value
        return tuple(entries.values())

    def _excluded(self, node: yaml.Node | None) -> tuple[Entry, ...]:
        if node is None:
            return ()
        if not is_plain(node, "map"):
            self._report(node, "excluded: expected a mapping from names to reasons")
            return ()
        entries: dict[str, Entry] = {}
        for key, value in node.value:
            if not is_plain(key, "str"):
                self._report(key, f"excluded: got {_shown(key)}, expected a name")
            elif not is_plain(value, "str") or not value.value:
                self._report(value, f"excluded: '{key.value}' needs a reason")
            elif key.value in entries:
                self._report(key, f"excluded: '{key.value}' stands twice")
            else:
                entries[key.value] = self._entry(key, reason=value.value)
        return tuple(entries.values())


def _shown(node: Any) -> str:
    return f"'{node.value}'" if isinstance(node, yaml.ScalarNode) else f"a {node.id}"


def choose_for(inputs: Inputs, schemas: Schemas) -> Choice:
    """What the selection file and the variable leave of one torch's operators."""
    selections = (load_selection(inputs.selection), parse_variable(inputs.variable))
    return choose(selections, schemas, inputs.hand_written_bases())


def choose(
    selections: Iterable[Selection], schemas: Schemas, hand_written: Collection[str] = ()
) -> Choice:
    """Applies the file and then what narrows it, which may name the ``hand_written`` too.

    Raises ``GenerationError`` for a typed name or pattern that stands for nothing; a file,
    which may have been written for another torch, is only told so in a note.
    """
    omitted: dict[str, Omission] = {}
    missing: dict[str, None] = {}
    notes: list[str] = []
    findings: list[str] = []
    for selection in selections:
        for entry in (*(selection.included or ()), *selection.excluded):
            matches = entry.matches(schemas.by_name)
            if not matches:
                if selection.origin == SELECTION_VARIABLE and entry.matches(hand_written):
                    continue
                unknown = f"{entry.where}: {_unknown(entry, schemas, hand_written)}"
                (findings if entry.is_typed else notes).append(unknown)
                if not entry.is_pattern and entry not in selection.excluded:
                    missing[entry.text] = None
            elif entry.is_typed and all(name in omitted for name in matches):
                name = matches[0]
                findings.append(f"{entry.where}: '{name}' is {omitted[name].explanation}")
        omitted = _omitted(selection, schemas.by_name) | omitted
    if findings:
        raise GenerationError("\n".join(findings))
    return Choice(omitted=omitted, missing=tuple(missing), notes=tuple(notes))


def _omitted(selection: Selection, known: Collection[str]) -> dict[str, Omission]:
    """What one selection leaves out."""
    omitted: dict[str, Omission] = {}
    if selection.included is not None:
        included = _matches(selection.included, known)
        not_selected = Omission(
            reason=SkipReason.NOT_SELECTED, explanation=f"not selected by {selection.origin}"
        )
        omitted = {name: not_selected for name in known if name not in included}
    for entry in selection.excluded:
        excluded = Omission(
            reason=SkipReason.EXCLUDED, explanation=f"excluded by {entry.where}: {entry.reason}"
        )
        omitted |= dict.fromkeys(entry.matches(known), excluded)
    return omitted


def _unknown(entry: Entry, schemas: Schemas, hand_written: Collection[str]) -> str:
    """Says that nothing has this name or matches this pattern, and what comes near."""
    verb = "that matches" if entry.is_pattern else "named"
    for name, public in schemas.public_names.items():
        if fnmatch.fnmatchcase(public, entry.text):
            return f"{_none(verb, entry.text, schemas)}; '{public}' is ATen's '{name}': write that"
    return no_operator(verb, entry.text, schemas, {*schemas.by_name, *hand_written})


def no_operator(verb: str, text: str, schemas: Schemas, known: Collection[str]) -> str:
    """Says that there is no such operator, and which of the ``known`` names comes near."""
    base, dot, _ = text.partition(".")
    if dot and base in known:
        hint = f"; a name stands for all its overloads: write '{base}'"
    else:
        hint = nearest(text.strip("*"), known)
    return f"{_none(verb, text, schemas)}{hint}"


def _none(verb: str, text: str, schemas: Schemas) -> str:
    return f"torch {schemas.torch_version} has no out= or in-place operator {verb} '{text}'"
