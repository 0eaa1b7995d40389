"""The hand-written operators as operators of torch: ``torch.ops.infini_ops.rms_norm``.

Importing this module registers them, with schemas made from ``native_ops_metadata.json``. The
inputs come first, in the order of ``infini.ops``. The outs that follow them are given by name::

    rms_norm(Tensor input, Tensor weight, float eps=1e-6, *, Tensor(a!) out,
             SymInt? implementation_index=None) -> ()

The operators return nothing, so that their fake implementations have nothing to compute: the
arguments are checked when the operator runs. They have no derivatives, and raise ``RuntimeError``
where torch's own functions with ``out=`` do: in grad mode, if an argument requires gradients.

``torch.compile`` imports this module when it traces a call of ``infini.ops``.
"""

import json
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import infini.ops
import torch

NAMESPACE = "infini_ops"
_OPTION = "implementation_index"


@dataclass(frozen=True, kw_only=True)
class TorchOperator:
    """A hand-written operator, as its metadata describes it."""

    name: str
    parameters: tuple[Mapping[str, Any], ...]  # in the order of the library
    inputs: tuple[str, ...]
    outs: tuple[str, ...]  # the written parameters after the inputs
    written: tuple[str, ...]  # these, and inputs that are written in place
    tensors: frozenset[str]  # the parameters that are a tensor, neither optional nor a list
    optional: frozenset[str]  # the parameters with a default
    is_resizing: bool  # torch has it, too, and resizes its outs

    @property
    def schema(self) -> str:
        """The operator in torch's language of schemas."""
        aliases = iter(string.ascii_lowercase)
        rows = [_declaration(each, aliases) for each in self.parameters]
        count = len(self.inputs)
        # A default can't be followed by a positional parameter without one.
        required = max(
            (i + 1 for i in range(count) if not _has_default(self.parameters[i])), default=0
        )
        for i, each in enumerate(self.parameters):
            if i >= required and _has_default(each):
                rows[i] += f"={each['default']}"
        rows[count:] = ["*", *rows[count:], f"SymInt? {_OPTION}=None"]
        return f"{self.name}({', '.join(rows)}) -> ()"


def _has_default(parameter: Mapping[str, Any]) -> bool:
    return parameter["default"] is not None


def _declaration(parameter: Mapping[str, Any], aliases: Iterator[str]) -> str:
    """``Tensor(a!) out``, without its default."""
    text = parameter["type"]
    if parameter["is_out"]:
        text = text.replace("Tensor", f"Tensor({next(aliases)}!)", 1)
    elif text.startswith("int"):
        text = f"SymInt{text[3:]}"  # a size can be symbolic in a graph
    return f"{text} {parameter['name']}"


def _read_operators() -> dict[str, TorchOperator]:
    metadata = json.loads(infini.ops.native_metadata_path().read_text())
    generated = infini.ops.metadata_path()
    of_torch = json.loads(generated.read_text())["ops"] if generated.exists() else []
    resizing = {each["name"] for each in of_torch}
    return {each["name"]: _operator(each, each["name"] in resizing) for each in metadata["ops"]}


def _operator(row: Mapping[str, Any], is_resizing: bool) -> TorchOperator:
    parameters = row["params"]
    count = len(parameters)
    while count and parameters[count - 1]["is_out"]:
        count -= 1
    return TorchOperator(
        name=row["name"],
        parameters=tuple(parameters),
        inputs=tuple(each["name"] for each in parameters[:count]),
        outs=tuple(each["name"] for each in parameters[count:]),
        written=tuple(each["name"] for each in parameters if each["is_out"]),
        tensors=frozenset(each["name"] for each in parameters if each["type"] == "Tensor"),
        optional=frozenset(each["name"] for each in parameters if _has_default(each)),
        is_resizing=is_resizing,
    )


def call(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Call ``infini.ops.<name>`` through torch's dispatcher, like the library without gradients.

    ``torch.compile`` traces this function. Calls that these operators can't represent run outside
    of its graphs; on fake tensors they raise ``NotImplementedError``.
    """
    bound = _bind(OPERATORS.get(name), arguments, keywords)
    if bound is None:
        if torch.compiler.is_dynamo_compiling():
            torch._dynamo.graph_break()
        raise NotImplementedError(
            f"infini.ops.{name}: got tensors without memory, expected a call of one of torch.ops."
            f"{NAMESPACE}: a hand-written operator, each tensor a torch.Tensor, and no `stream`"
        )
    with torch.no_grad():
        getattr(torch.ops.infini_ops, name).default(*bound[0], **bound[1])


def _bind(
    operator: TorchOperator | None, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Divide the arguments as the library does: the last positional ones are the outs."""
    if operator is None or keywords.get("stream"):
        return None
    outs = [
        each for each in operator.outs if each not in keywords and each not in operator.optional
    ]
    count = len(arguments) - len(outs)
    if not 0 <= count <= len(operator.inputs):
        return None
    named = {name: value for name, value in keywords.items() if name != "stream"}
    for name, value in zip(outs, arguments[count:], strict=False):
        named[name] = value
    values = dict(zip(operator.inputs, arguments, strict=False))
    values.update(named)
    for name in operator.tensors:
        if not isinstance(values.get(name), torch.Tensor):
            return None  # an overload that only torch has, or a NumPy array
    if operator.is_resizing and any(values[name].numel() == 0 for name in operator.outs):
        return None
    return arguments[:count], named


def _in_grad_mode(operator: TorchOperator) -> Callable[..., None]:
    """The kernel above autograd: refuse what would need a derivative."""
    overload = getattr(torch.ops.infini_ops, operator.name).default

    def run(keys: Any, *arguments: Any, **keywords: Any) -> None:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments, **keywords):
            raise RuntimeError(_no_derivative(operator, arguments, keywords))
        with torch._C._AutoDispatchBelowAutograd():
            overload.redispatch(keys & torch._C._after_autograd_keyset, *arguments, **keywords)

    return run


def _no_derivative(
    operator: TorchOperator, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> str:
    named = {**dict(zip(operator.inputs, arguments, strict=False)), **keywords}
    names = [
        name for name, value in named.items() if any(each.requires_grad for each in _tensors(value))
    ]
    return (
        f"{NAMESPACE}::{operator.name}: {', '.join(names)}: got tensors that require gradients, "
        "but the operator has no derivative. Call it under torch.no_grad(), or pass x.detach()"
    )


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    values = value if isinstance(value, (list, tuple)) else (value,)
    return (each for each in values if isinstance(each, torch.Tensor))


def _without_resizing(operator: TorchOperator) -> Callable[..., None]:
    """The kernel of an operator that torch has, too: a graph relies on the shapes of its outs."""
    function = getattr(infini.ops, operator.name)

    def run(*arguments: Any, **keywords: Any) -> None:
        shapes = {name: keywords[name].shape for name in operator.outs}
        function(*arguments, **keywords)
        for name, shape in shapes.items():
            if keywords[name].shape != shape:
                raise RuntimeError(
                    f"{NAMESPACE}::{operator.name}: {name} has the wrong shape: got {list(shape)}, "
                    f"expected {list(keywords[name].shape)}. Only infini.ops.{operator.name}, "
                    "outside of graphs, resizes it"
                )

    return run


def _register(library: torch.library.Library, operator: TorchOperator) -> None:
    library.define(operator.schema)
    name = operator.name
    kernel = _without_resizing(operator) if operator.is_resizing else getattr(infini.ops, name)
    library.impl(name, kernel, "CompositeExplicitAutograd")
    library.impl(name, _in_grad_mode(operator), "Autograd", with_keyset=True)
    torch.library.register_fake(f"{NAMESPACE}::{name}", _nothing, lib=library)


def _nothing(*_arguments: Any, **_keywords: Any) -> None:
    """The fake implementation: the operators return nothing."""


OPERATORS = _read_operators()
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")  # the operators live as long as it does
for _operator_of_torch in OPERATORS.values():
    _register(_LIBRARY, _operator_of_torch)
