"""The faults that people thought of: mistakes that a generator, or a hand-written table, can have.

A fault in the model reaches everything that is generated: table, kernels, metadata, stub and
headers have the same mistake. Other faults are in one file only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from codegen import cpp
from codegen.emit import render_torch
from codegen.model import Argument, Library, Operator, Overload, Parameter, ParameterKind
from tools.mutants import edits

GENERATED = "build/generated"
TABLE = "operator_table.cc"
KERNELS = "torch/kernels.cc"


class PlantingError(Exception):
    """A fault does not fit the sources, or a mutant proves nothing."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The sources that get faults; ``sampled`` has the overloads that the suite executes."""

    root: Path
    library: Library
    hand_written: frozenset[str]
    sampled: frozenset[str]

    @cached_property
    def generated(self) -> Mapping[str, str]:
        return render_torch(self.library, self.hand_written)


@dataclass(frozen=True, kw_only=True)
class Site:
    """One place for a fault; ``plant`` returns the changed files by path relative to the tree.

    ``operator`` is the operator with the fault, or None if all operators share the place.
    """

    subject: str
    operator: Operator | None
    what: str
    plant: Callable[[], Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind of fault."""

    name: str
    sites: Callable[[Sources], Iterator[Site]]
    equivalent: str | None = None
    """Why no test can detect it; such a fault is listed, and not planted."""


Change = tuple[str, tuple[Parameter, ...]]  # description, and the wrong parameters


def in_model(
    changes: Callable[[Overload], Iterator[Change]],
) -> Callable[[Sources], Iterator[Site]]:
    """Return the sites of a fault in everything that is generated for an overload."""

    def sites(sources: Sources) -> Iterator[Site]:
        for operator, overload in _sampled(sources):
            for what, parameters in changes(overload):
                wrong = partial(_rendered, sources, operator, overload, parameters)
                yield _site(operator, overload, what, wrong)

    return sites


def _sampled(sources: Sources) -> Iterator[tuple[Operator, Overload]]:
    for operator in sources.library.operators:
        for overload in operator.overloads:
            if overload.schema.full_name in sources.sampled:
                yield operator, overload


def _site(
    operator: Operator, overload: Overload, what: str, plant: Callable[[], Mapping[str, str]]
) -> Site:
    return Site(subject=overload.schema.full_name, operator=operator, what=what, plant=plant)


def _rendered(
    sources: Sources, operator: Operator, overload: Overload, parameters: tuple[Parameter, ...]
) -> Mapping[str, str]:
    wrong = replace(overload, parameters=parameters)
    overloads = tuple(wrong if each is overload else each for each in operator.overloads)
    operators = tuple(
        replace(each, overloads=overloads) if each is operator else each
        for each in sources.library.operators
    )
    files = render_torch(replace(sources.library, operators=operators), sources.hand_written)
    return {
        f"{GENERATED}/{name}": text
        for name, text in files.items()
        if text != sources.generated[name]
    }


def _with(overload: Overload, index: int, *parameters: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters with others in place of those from ``index`` on."""
    kept = overload.parameters
    return (*kept[:index], *parameters, *kept[index + len(parameters) :])


def _argument(parameter: Parameter, **fields: Any) -> Parameter:
    argument: Argument = replace(parameter.argument, **fields)
    return replace(parameter, argument=argument)


def _type(parameter: Parameter, **fields: Any) -> Parameter:
    return _argument(parameter, type=replace(parameter.argument.type, **fields))


def _adjacent_inputs(overload: Overload) -> Iterator[tuple[int, Parameter, Parameter]]:
    """Yield adjacent inputs of the same type."""
    inputs = overload.inputs
    for index, (left, right) in enumerate(pairwise(inputs)):
        if cpp.argument_type(left) == cpp.argument_type(right) and not right.is_out:
            yield index, left, right


def exchanged_arguments(overload: Overload) -> Iterator[Change]:
    for index, left, right in _adjacent_inputs(overload):
        if (left.aten_default is None) == (right.aten_default is None) and not left.is_out:
            what = f"{left.name} and {right.name} are swapped"
            yield what, _with(overload, index, right, left)


def wrong_default(overload: Overload) -> Iterator[Change]:
    for index, parameter in enumerate(overload.parameters):
        wrong = _with_wrong_default(parameter)
        if wrong is not None:
            what = f"{parameter.name}={wrong.aten_default}, not {parameter.aten_default}"
            yield what, _with(overload, index, wrong)


def _with_wrong_default(parameter: Parameter) -> Parameter | None:
    """Return the parameter with another default, or None if its default is not a number."""
    value = parameter.default
    if parameter.aten_default is None or not isinstance(value, int | float):
        return None
    wrong = not value if isinstance(value, bool) else value + 1
    return replace(_argument(parameter, default=str(wrong)), default=wrong)


def lost_default(overload: Overload) -> Iterator[Change]:
    if overload.default_count:
        last = overload.inputs[-1]
        what = f"{last.name} is required"
        yield what, _with(overload, len(overload.inputs) - 1, _argument(last, default=None))


def wrong_keyword(overload: Overload) -> Iterator[Change]:
    for index, parameter in enumerate(overload.parameters):
        wrong = _argument(parameter, name=f"{parameter.argument.name}_value")
        yield f"{parameter.name} is called {wrong.name}", _with(overload, index, wrong)


def wrong_list_length(overload: Overload) -> Iterator[Change]:
    for index, parameter in enumerate(overload.parameters):
        if parameter.list_size and parameter.aten_default is None:
            wrong = _type(parameter, list_size=parameter.list_size + 1)
            what = f"{parameter.name} has {wrong.list_size} elements, not {parameter.list_size}"
            yield what, _with(overload, index, wrong)


def wrong_kind(
    right: ParameterKind, base: str, wrong: ParameterKind, overload: Overload
) -> Iterator[Change]:
    for index, parameter in enumerate(overload.parameters):
        if parameter.kind is right and not parameter.is_list:
            changed = replace(_type(parameter, base=base), kind=wrong)
            what = f"{parameter.name} is {wrong.value}, not {right.value}"
            yield what, _with(overload, index, changed)


def lost_optional(overload: Overload) -> Iterator[Change]:
    for index, parameter in enumerate(overload.parameters):
        # Without a default, since the default of most is None.
        if parameter.is_optional and parameter.aten_default is None:
            what = f"{parameter.name} can't be None"
            yield what, _with(overload, index, _type(parameter, is_optional=False))


def input_as_output(overload: Overload) -> Iterator[Change]:
    for index, parameter in enumerate(overload.inputs):
        if parameter.kind is ParameterKind.TENSOR and not parameter.is_out:
            what = f"{parameter.name} is written"
            yield what, _with(overload, index, _argument(parameter, annotation="z!"))


def output_as_input(overload: Overload) -> Iterator[Change]:
    outs = [index for index, each in enumerate(overload.parameters) if each.is_out]
    for index in outs if len(outs) > 1 else ():
        parameter = overload.parameters[index]
        what = f"{parameter.name} is not written"
        yield what, _with(overload, index, _argument(parameter, annotation=None))


def dropped_out(sources: Sources) -> Iterator[Site]:
    """The table has an output as an input; the other files are right."""
    for operator, overload in _sampled(sources):
        rows = [f"    {cpp.parameter_row(each)},\n" for each in overload.parameters]
        head = f"    // {overload.schema.full_name}\n"
        for index, parameter in enumerate(overload.parameters):
            if parameter.is_out:
                wrong = [*rows]
                wrong[index] = rows[index].replace(".Out()", "")
                change = (TABLE, head + "".join(rows), head + "".join(wrong))
                yield _site(
                    operator, overload, f"{parameter.name} is not Out()", _edit(sources, *change)
                )


def wrong_overload(sources: Sources) -> Iterator[Site]:
    """A row of the table has the name of another overload."""
    for operator, overload, other in _siblings(sources):
        what = f"its row is called {other.schema.overload_name!r}"
        row = '{{"{}", "{}", kParameters'
        old = row.format(operator.name, overload.schema.overload_name)
        new = row.format(operator.name, other.schema.overload_name)
        yield _site(operator, overload, what, _edit(sources, TABLE, old, new))


def _siblings(sources: Sources) -> Iterator[tuple[Operator, Overload, Overload]]:
    for operator, overload in _sampled(sources):
        for other in operator.overloads:
            if other is not overload:
                yield operator, overload, other


def wrong_kernel(sources: Sources) -> Iterator[Site]:
    """The kernel of another operator with one input and one output, and other results."""
    outcomes = {
        overload.schema.full_name: (operator, overload, outcome)
        for operator, overload in _sampled(sources)
        if (outcome := _results(overload)) is not None
    }
    for operator, overload, outcome in outcomes.values():
        for _, other, another in outcomes.values():
            if outcome != another:
                yield _kernel_site(sources, operator, overload, other)


def _kernel_site(sources: Sources, operator: Operator, overload: Overload, other: Overload) -> Site:
    old, new = (f"    KERNEL({each.schema.function}),\n" for each in (overload, other))
    what = f"calls {other.schema.full_name}"
    return _site(operator, overload, what, _edit(sources, KERNELS, old, new))


@cache
def _results(overload: Overload) -> str | None:
    """Return torch's results for some numbers; operators with equal results may be aliases."""
    import torch

    kinds = [(each.kind, each.is_list, each.is_out) for each in overload.parameters]
    if kinds != [(ParameterKind.TENSOR, False, False), (ParameterKind.TENSOR, False, True)]:
        return None
    packet = getattr(torch.ops.aten, overload.schema.aten_name)
    function = getattr(packet, overload.schema.overload_name)
    numbers = torch.tensor([[-2.5, -1.5, -0.4], [0.3, 0.6, 1.7]])
    out = torch.empty(0)
    try:
        function(numbers, **{overload.parameters[1].argument.name: out})
    except RuntimeError:
        return None
    return str(out.tolist())


def kernel_of_another_overload(sources: Sources) -> Iterator[Site]:
    """The kernel of an overload that takes a number in place of a tensor, or the reverse."""
    for operator, overload, other in _siblings(sources):
        kinds, others = ([each.kind for each in one.parameters] for one in (overload, other))
        if len(kinds) != len(others):
            continue
        differing = [{*pair} for pair in zip(kinds, others, strict=True) if len({*pair}) > 1]
        if differing == [{ParameterKind.TENSOR, ParameterKind.SCALAR}]:
            yield _kernel_site(sources, operator, overload, other)


def _calls(sources: Sources) -> Iterator[tuple[Operator, cpp.CallForm]]:
    """Yield the forms of ``Call`` in generated headers."""
    for operator in sources.library.operators:
        if operator.name in sources.hand_written:
            continue
        for form in cpp.call_forms(operator):
            yield operator, form


def _call(overload: Overload, arguments: Sequence[str]) -> str:
    """Return the body of a form of ``Call``, which a header has once."""
    return (
        f'FindOverload(kName, "{overload.schema.overload_name}");\n'
        f"    Dispatch(overload, {{{', '.join(arguments)}}}, options);"
    )


def _call_site(
    sources: Sources, operator: Operator, form: cpp.CallForm, what: str, wrong: str
) -> Site:
    right = _call(form.overload, form.arguments)
    plant = _edit(sources, f"base/{operator.name}.h", right, wrong)
    return _site(operator, form.overload, what, plant)


def exchanged_in_call(sources: Sources) -> Iterator[Site]:
    for operator, form in _calls(sources):
        for index, left, right in _adjacent_inputs(form.overload):
            arguments = form.arguments
            if arguments[index : index + 2] == [left.name, right.name]:
                arguments[index : index + 2] = [right.name, left.name]
                what = f"Call exchanges {left.name} and {right.name}"
                wrong_call = _call(form.overload, arguments)
                yield _call_site(sources, operator, form, what, wrong_call)


def wrong_default_in_call(sources: Sources) -> Iterator[Site]:
    for operator, form in _calls(sources):
        for index, parameter in enumerate(form.overload.parameters):
            wrong = _with_wrong_default(parameter)
            if parameter not in form.parameters and wrong is not None:
                arguments = form.arguments
                arguments[index] = cpp.default_value(wrong)
                what = f"Call passes {parameter.name}={wrong.aten_default}"
                wrong_call = _call(form.overload, arguments)
                yield _call_site(sources, operator, form, what, wrong_call)


def dropped_out_in_call(sources: Sources) -> Iterator[Site]:
    for operator, form in _calls(sources):
        if form.overload.outs:
            what = f"Call leaves {form.overload.outs[-1].name} out"
            wrong = _call(form.overload, form.arguments[:-1])
            yield _call_site(sources, operator, form, what, wrong)


def wrong_overload_in_call(sources: Sources) -> Iterator[Site]:
    for operator, form in _calls(sources):
        for other in operator.overloads:
            if other is not form.overload:
                what = f"Call dispatches to {other.schema.overload_name!r}"
                wrong = _call(other, form.arguments)
                yield _call_site(sources, operator, form, what, wrong)


def _edit(sources: Sources, name: str, old: str, new: str) -> Callable[[], Mapping[str, str]]:
    """Return a function that replaces a text that a generated file has once."""
    path = f"{GENERATED}/{name}"
    return lambda: {path: replace_once(sources.generated[name], old, new, path)}


def replace_once(text: str, old: str, new: str, path: str) -> str:
    if text.count(old) != 1:
        raise PlantingError(
            f"{path}: found this text {text.count(old)} times, expected once:\n{old}\n"
            "Update tools/mutants to match the file."
        )
    return text.replace(old, new)


def in_hand_written_sources(
    *places: tuple[str, str, str, str],
) -> Callable[[Sources], Iterator[Site]]:
    """Return the sites of edits of hand-written sources: (what, path, old text, new text)."""

    def sites(sources: Sources) -> Iterator[Site]:
        for what, path, old, new in places:
            yield Site(
                subject=path,
                operator=None,
                what=what,
                plant=partial(_edited_source, sources.root, path, old, new),
            )

    return sites


def _edited_source(root: Path, path: str, old: str, new: str) -> Mapping[str, str]:
    return {path: replace_once((root / path).read_text(encoding="utf-8"), old, new, path)}


FAULTS = (
    Fault(name="exchanged-arguments", sites=in_model(exchanged_arguments)),
    Fault(name="wrong-default", sites=in_model(wrong_default)),
    Fault(name="lost-default", sites=in_model(lost_default)),
    Fault(name="wrong-keyword", sites=in_model(wrong_keyword)),
    Fault(name="wrong-list-length", sites=in_model(wrong_list_length)),
    Fault(
        name="integer-for-float",
        sites=in_model(partial(wrong_kind, ParameterKind.FLOAT, "int", ParameterKind.INT)),
    ),
    Fault(
        name="float-for-integer",
        sites=in_model(partial(wrong_kind, ParameterKind.INT, "float", ParameterKind.FLOAT)),
    ),
    Fault(name="lost-optional", sites=in_model(lost_optional)),
    Fault(name="input-as-output", sites=in_model(input_as_output)),
    Fault(name="output-as-input", sites=in_model(output_as_input)),
    Fault(name="dropped-out", sites=dropped_out),
    Fault(name="wrong-overload", sites=wrong_overload),
    Fault(name="wrong-kernel", sites=wrong_kernel),
    Fault(name="kernel-of-another-overload", sites=kernel_of_another_overload),
    Fault(name="exchanged-in-call", sites=exchanged_in_call),
    Fault(name="wrong-default-in-call", sites=wrong_default_in_call),
    Fault(name="wrong-overload-in-call", sites=wrong_overload_in_call),
    Fault(name="dropped-out-in-call", sites=dropped_out_in_call),
    Fault(name="wrong-data-type", sites=in_hand_written_sources(*edits.WRONG_DATA_TYPES)),
    Fault(name="lost-stride", sites=in_hand_written_sources(*edits.LOST_STRIDES)),
    Fault(name="wrong-native-kernel", sites=in_hand_written_sources(*edits.WRONG_NATIVE_KERNELS)),
    Fault(name="lost-maximum", sites=in_hand_written_sources(*edits.LOST_MAXIMA)),
    Fault(name="late-rows", sites=in_hand_written_sources(*edits.LATE_ROWS)),
    Fault(name="view-without-strides", sites=in_hand_written_sources(*edits.VIEWS_WITHOUT_STRIDES)),
    Fault(name="overlap-of-one-byte", sites=in_hand_written_sources(*edits.OVERLAPS_OF_ONE_BYTE)),
    Fault(name="rounded-nan", sites=in_hand_written_sources(*edits.ROUNDED_NANS)),
    Fault(name="bool-as-number", sites=in_hand_written_sources(*edits.BOOLS_AS_NUMBERS)),
    Fault(name="wrong-limit", sites=in_hand_written_sources(*edits.WRONG_LIMITS)),
    Fault(name="unchecked-storage", sites=in_hand_written_sources(*edits.UNCHECKED_STORAGE)),
    Fault(name="lost-offset", sites=in_hand_written_sources(*edits.LOST_OFFSETS)),
    Fault(name="pool-after-fork", sites=in_hand_written_sources(*edits.POOLS_AFTER_FORK)),
    Fault(
        name="pool-after-second-fork", sites=in_hand_written_sources(*edits.POOLS_AFTER_SECOND_FORK)
    ),
    Fault(name="subnormal-edge", sites=in_hand_written_sources(*edits.SUBNORMAL_EDGES)),
    Fault(name="narrower-vectors", sites=in_hand_written_sources(*edits.NARROWER_VECTORS)),
    Fault(name="wrong-part", sites=in_hand_written_sources(*edits.WRONG_PARTS)),
    Fault(name="leaked-number", sites=in_hand_written_sources(*edits.LEAKED_NUMBERS)),
    Fault(name="unreleased-array", sites=in_hand_written_sources(*edits.UNRELEASED_ARRAYS)),
    Fault(name="kept-operands", sites=in_hand_written_sources(*edits.KEPT_OPERANDS)),
    Fault(name="aliased-factors", sites=in_hand_written_sources(*edits.ALIASED_FACTORS)),
    Fault(name="wrong-experts", sites=in_hand_written_sources(*edits.WRONG_EXPERTS)),
)
