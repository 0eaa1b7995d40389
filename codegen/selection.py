"""Which operators are built: a selection file of ATen operators, narrowed by the environment.

The file contains only ATen operators. The environment variable may also name hand-written ones.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from codegen.errors import GenerationError, suggestion
from codegen.inputs import PREDEFINED, SELECTION_VARIABLE, Inputs, is_selection_path
from codegen.model import Choice, Omission, Schemas, SkipReason
from codegen.nodes import Reader, is_plain

ALL = "all"
ATEN = "aten::"
# torchgen/selective_build/selector.py: the other keys of its form.
_EVERYTHING = "include_all_operators"
_TORCHGEN_KEYS = (
    *(_EVERYTHING, "include_all_non_op_selectives", "debug_info", "kernel_metadata"),
    *("et_kernel_metadata", "custom_classes", "build_features"),
)


@dataclass(frozen=True, kw_only=True)
class SelectionEntry:
    """An ATen base name or a pattern, its location, and the reason if it is excluded."""

    text: str
    where: str  # "codegen/torch_ops.yaml:3", or the name of the variable
    reason: str = ""

    @property
    def is_pattern(self) -> bool:
        return not set(self.text).isdisjoint("*?[")

    @property
    def is_from_variable(self) -> bool:
        """True if it comes from the variable itself, rather than from a file."""
        return self.where == SELECTION_VARIABLE

    def matches(self, known: Collection[str]) -> list[str]:
        """The names in ``known`` that this entry selects."""
        if self.is_pattern:
            return fnmatch.filter(known, self.text)
        return [self.text] if self.text in known else []


@dataclass(frozen=True, kw_only=True)
class Selection:
    """One selection, read from a file or from the variable."""

    origin: str
    included: tuple[SelectionEntry, ...] | None  # None: all
    excluded: tuple[SelectionEntry, ...] = ()

    def names(self, known: Collection[str]) -> set[str]:
        """The ``known`` names that are selected."""
        included = known if self.included is None else _matches(self.included, known)
        return set(included) - _matches(self.excluded, known)


def _matches(entries: Iterable[SelectionEntry], known: Collection[str]) -> set[str]:
    return {name for entry in entries for name in entry.matches(known)}


def load_selection(path: Path) -> Selection:
    """Read and check a selection file; raise ``GenerationError`` with every finding.

    The file can also have torchgen's form, for selective builds: ``aten::add.out:`` under
    ``operators``. Its dtypes have no effect: an operator is built for all.
    """
    reader = Reader(path, "a selection of operators")
    # In YAML, a leading asterisk is an alias.
    hint = "; put a pattern that begins with * in quotes"
    reader.read_sections(
        ("operators", "excluded"),
        "operators and excluded",
        alias_hint=hint,
        also=_TORCHGEN_KEYS,
    )
    if _is_torchgens(reader):
        included = _included_by_torchgen(reader)
        reader.raise_findings()
        return Selection(origin=str(path), included=included)
    excluded = _excluded(reader)
    included = _included(reader, unwanted={entry.text for entry in excluded})
    reader.raise_findings()
    return Selection(origin=str(path), included=included, excluded=excluded)


def _is_torchgens(reader: Reader) -> bool:
    """True for torchgen's form; it has a namespace before each operator."""
    if not reader.sections.keys().isdisjoint(_TORCHGEN_KEYS):
        return True
    node = reader.sections.get("operators")
    return (
        node is not None
        and is_plain(node, "map")
        and any("::" in str(key.value) for key, _ in node.value)
    )


def _included_by_torchgen(reader: Reader) -> tuple[SelectionEntry, ...] | None:
    """Read the operators of torchgen's form by their base names; None: all operators."""
    everything = reader.sections.get(_EVERYTHING)
    if everything is not None and is_plain(everything, "bool") and everything.value == "true":
        return None
    if "excluded" in reader.sections:
        text = (
            f"excluded: not a key of torchgen's form; expected one of {', '.join(_TORCHGEN_KEYS)}"
        )
        reader.report(reader.lines["excluded"], text)
    node = reader.sections.get("operators")
    if node is None or not is_plain(node, "map") or not node.value:
        place = 1 if node is None else node
        reader.report(place, f"operators: expected at least one {ATEN}<name>.<overload>:")
        return ()
    entries: dict[str, SelectionEntry] = {}
    for key, _ in node.value:
        if not reader.is_string("operators", key, f"{ATEN}<name>.<overload>"):
            continue
        if "::" not in key.value:
            reader.report(key, f"'{key.value}' has no namespace; write '{ATEN}{key.value}'")
        base = key.value.removeprefix(ATEN).partition(".")[0]
        entries.setdefault(base, SelectionEntry(text=base, where=reader.where(key)))
    return tuple(entries.values())


def _included(reader: Reader, unwanted: Collection[str]) -> tuple[SelectionEntry, ...] | None:
    """Read the entries under ``operators``; None: all operators."""
    node = reader.sections.get("operators")
    if node is None or node.value in ("", []) or is_plain(node, "null"):
        text = "expected 'operators: all', or at least one name under 'operators'"
        reader.report(node or 1, text)
        return ()
    if is_plain(node, "str") and node.value == ALL:
        return None
    entries: dict[str, SelectionEntry] = {}
    previous = ""
    for item in reader.items("operators", f"'{ALL}' or a list of ATen names and patterns"):
        if not reader.is_string("operators", item, "a name"):
            continue
        if item.value in entries:
            reader.report(item, f"duplicate entry '{item.value}'")
        elif item.value < previous:
            reader.report(
                item, f"'{item.value}' is not in sorted order; move it before '{previous}'"
            )
        if item.value in unwanted:
            reader.report(item, f"'{item.value}' is both listed and excluded; remove one")
        entries[item.value] = SelectionEntry(text=item.value, where=reader.where(item))
        previous = item.value
    return tuple(entries.values())


def _excluded(reader: Reader) -> tuple[SelectionEntry, ...]:
    """Read the entries under ``excluded``, with their reasons."""
    node = reader.sections.get("excluded")
    if node is None:
        return ()
    if not is_plain(node, "map"):
        reader.refuse(node, "excluded", "a mapping from names to reasons")
        return ()
    entries: dict[str, SelectionEntry] = {}
    for key, value in node.value:
        if not reader.is_string("excluded", key, "a name"):
            continue
        if not is_plain(value, "str") or not value.value:
            reader.report(value, f"excluded: '{key.value}' needs a reason")
        elif key.value in entries:
            reader.report(key, f"excluded: duplicate entry '{key.value}'")
        else:
            entries[key.value] = SelectionEntry(
                text=key.value, where=reader.where(key), reason=value.value
            )
    return tuple(entries.values())


def parse_variable(value: str) -> Selection:
    """Parse a value of ``INFINI_OPS_TORCH_OPS``.

    The value is a list of names, patterns and predefined selections, separated by commas or spaces,
    or ``all``, or the path of a selection file.
    """
    if is_selection_path(value):
        try:
            return load_selection(Path(value))
        except GenerationError as error:
            raise GenerationError(f"{SELECTION_VARIABLE}: {error}") from None
    texts = value.replace(",", " ").split()
    if texts in ([], [ALL]):
        return Selection(origin=SELECTION_VARIABLE, included=None)
    included: list[SelectionEntry] = []
    excluded: list[SelectionEntry] = []
    for text in texts:
        if (PREDEFINED / f"{text}.yaml").is_file():
            predefined = load_selection(PREDEFINED / f"{text}.yaml")
            included += predefined.included or [SelectionEntry(text="*", where=predefined.origin)]
            excluded += predefined.excluded
        else:
            included.append(SelectionEntry(text=text, where=SELECTION_VARIABLE))
    return Selection(origin=SELECTION_VARIABLE, included=tuple(included), excluded=tuple(excluded))


def select_hand_written(variable: str, known: Collection[str], *, alone: bool) -> list[str]:
    """The ``known`` hand-written operators that a value of the variable selects.

    ``alone``: the build has no torch, and so no other operators. Then every name in the variable
    must be a hand-written operator. Raises ``GenerationError`` if one is not.
    """
    selection = parse_variable(variable)
    names = selection.names(known)
    unknown = [each for each in selection.included or () if not each.matches(known)]
    if typed := [entry.text for entry in unknown if alone and entry.is_from_variable]:
        findings = (
            f"{SELECTION_VARIABLE}: '{text}' is not a hand-written operator, and this build has no "
            f"torch{suggestion(text.strip('*'), known)}"
            for text in typed
        )
        raise GenerationError("\n".join(findings))
    if alone and not names:
        raise GenerationError(
            f"{SELECTION_VARIABLE}: got '{variable}', which selects no hand-written operator, and "
            "this build has no torch; "
            f"expected one of {', '.join(sorted(known))}"
        )
    return sorted(names)


def choose_operators(inputs: Inputs, schemas: Schemas) -> Choice:
    """Apply the selection file and the variable to the operators of one torch."""
    selections = (load_selection(inputs.selection), parse_variable(inputs.variable))
    return apply_selections(selections, schemas, inputs.hand_written_bases())


def apply_selections(
    selections: Iterable[Selection], schemas: Schemas, hand_written: Collection[str] = ()
) -> Choice:
    """Apply the selections: first the file, then the variable.

    The variable may also name the ``hand_written`` operators. Raises ``GenerationError`` for a name
    or pattern in the variable that matches no operator. For an entry of a file, the result contains
    a note instead: the file may be for another torch version.
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
                verb = "that matches" if entry.is_pattern else "named"
                known = {*schemas.by_name, *hand_written}
                unknown = f"{entry.where}: {unknown_operator(verb, entry.text, schemas, known)}"
                (findings if entry.is_from_variable else notes).append(unknown)
                if not entry.is_pattern and entry not in selection.excluded:
                    missing[entry.text] = None
            elif entry.is_from_variable and all(name in omitted for name in matches):
                name = matches[0]
                findings.append(f"{entry.where}: '{name}' is {omitted[name].explanation}")
        omitted = _find_omissions(selection, schemas.by_name) | omitted
    if findings:
        raise GenerationError("\n".join(findings))
    return Choice(omitted=omitted, missing=tuple(missing), notes=tuple(notes))


def _find_omissions(selection: Selection, known: Collection[str]) -> dict[str, Omission]:
    """The operators that one selection leaves out."""
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


def unknown_operator(verb: str, text: str, schemas: Schemas, known: Collection[str]) -> str:
    """Report that no operator has this name or matches this pattern, and suggest a similar one.

    The suggestion is ATen's name if the public name was given, or else one of the ``known`` names.
    """
    base, dot, _ = text.partition(".")
    names = schemas.public_names
    matching = [name for name, public in names.items() if fnmatch.fnmatchcase(public, text)]
    if matching:
        hint = f"; the ATen name of '{names[matching[0]]}' is '{matching[0]}'; write that"
    elif dot and base in known:
        hint = f"; a name selects all its overloads; write '{base}'"
    else:
        hint = suggestion(text.strip("*"), known)
    return f"torch {schemas.torch_version} has no out= or in-place operator {verb} '{text}'{hint}"
