"""``torch.ops.infini_ops``, and calls of ``infini.ops`` in graphs and on fake tensors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from installed import native_metadata
from native_examples import OPERATORS
from quantization_examples import FLOAT8
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import infini.ops
import torch
from infini.ops import torch_library

pytestmark = pytest.mark.cpu_kernels
NAMES = [pytest.param(name, marks=pytest.mark.operators(name)) for name in sorted(OPERATORS)]


@pytest.fixture(autouse=True)
def forget_compiled_functions() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def normalize(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    infini.ops.rms_norm(x * 2, weight, out)
    return out + 1


def targets(function: Callable[..., Any], *arguments: torch.Tensor) -> list[str]:
    """Returns what the only graph of a compiled function calls."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        graphs.append(graph)
        forward: Callable[..., Any] = graph.forward
        return forward

    torch.compile(function, fullgraph=True, backend=backend)(*arguments)
    (graph,) = graphs
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def example_of(name: str) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments of the first example of an operator, as torch takes them."""
    operator = torch_library.OPERATORS[name]
    example = next(OPERATORS[name].examples(torch.float32))
    values = {**example.arguments, **example.outs}
    return (
        [values.pop(each) for each in operator.inputs if each in values],
        {each: values[each] for each in operator.outs if each in values},
    )


GENERATE = """
import infini.ops, torch

def normalize(x, weight):
    out = torch.empty_like(x)
    infini.ops.rms_norm(x * 2, weight, out)
    return out + 1

x, weight = torch.rand(3, 4), torch.rand(4)
compiled = torch.compile(normalize, fullgraph=True, backend="inductor")
print(torch.equal(compiled(x, weight), normalize(x, weight)))
"""


class TestSchemas:
    @pytest.mark.operators("rms_norm")
    def test_inputs_come_first_and_outs_are_named(self) -> None:
        assert str(torch.ops.infini_ops.rms_norm.default._schema) == (
            "infini_ops::rms_norm(Tensor input, Tensor weight, float eps=9.9999999999999995e-07, "
            "*, Tensor(a!) out, SymInt? implementation_index=None) -> ()"
        )

    @pytest.mark.operators("fused_add_rms_norm")
    def test_what_is_written_in_place_keeps_its_position(self) -> None:
        assert torch_library.OPERATORS["fused_add_rms_norm"].schema == (
            "fused_add_rms_norm(Tensor(a!) input, Tensor(b!) residual, Tensor weight, "
            "float eps=1e-6, *, SymInt? implementation_index=None) -> ()"
        )

    def test_a_default_before_a_required_input_is_left_out(self) -> None:
        def parameter(name: str, kind: str, default: str | None = None) -> dict[str, Any]:
            return {"name": name, "type": kind, "is_out": name == "key", "default": default}

        operator = torch_library.TorchOperator(
            name="rotate",
            parameters=(
                parameter("key", "Tensor?", "None"),
                parameter("head_size", "int"),
                parameter("sizes", "int[]", "[]"),
            ),
            inputs=("key", "head_size", "sizes"),
            outs=(),
            written=("key",),
            tensors=frozenset(),
            optional=frozenset({"key", "sizes"}),
            is_resizing=False,
        )
        assert operator.schema == (
            "rotate(Tensor(a!)? key, SymInt head_size, SymInt[] sizes=[], *, "
            "SymInt? implementation_index=None) -> ()"
        )

    @pytest.mark.operators("flash_attn_with_kvcache")
    def test_an_out_can_have_a_default(self) -> None:
        assert torch_library.OPERATORS["flash_attn_with_kvcache"].schema.endswith(
            "Tensor? alibi_slopes=None, *, Tensor(a!) out, Tensor(b!)? softmax_lse=None, "
            "SymInt? implementation_index=None) -> ()"
        )

    def test_every_hand_written_operator_of_the_build_has_one(self) -> None:
        assert {each["name"] for each in native_metadata()["ops"]} == set(torch_library.OPERATORS)
        for name, operator in torch_library.OPERATORS.items():
            registered = getattr(torch.ops.infini_ops, name).default._schema
            assert str(torch._C.parse_schema(f"infini_ops::{operator.schema}")) == str(registered)


@pytest.mark.parametrize("name", NAMES)
def test_torch_accepts_the_registration(name: str) -> None:
    inputs, outs = example_of(name)
    # Torch's check of schemas compares values, for which it lacks the 8-bit floats.
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if all(getattr(each, "dtype", None) is not FLOAT8 for each in (*inputs, *outs.values())):
        checks.append("test_schema")
    operator = getattr(torch.ops.infini_ops, name).default
    results = torch.library.opcheck(operator, inputs, outs, test_utils=checks)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", NAMES)
def test_a_graph_has_the_results_of_a_direct_call(name: str, backend: str) -> None:
    operator = torch_library.OPERATORS[name]
    inputs, outs = example_of(name)
    arguments = {**dict(zip(operator.inputs, inputs, strict=False)), **outs}
    written = [each for name in operator.written if (each := arguments.get(name)) is not None]
    before = [each.clone() for each in written]

    def call() -> None:
        getattr(infini.ops, name)(*inputs, **outs)

    call()
    expected = [each.clone() for each in written]
    for each, old in zip(written, before, strict=True):
        each.copy_(old)
    torch.compile(call, fullgraph=True, backend=backend)()
    for each, result in zip(written, expected, strict=True):
        torch.testing.assert_close(each, result, rtol=0, atol=0, equal_nan=True)


@pytest.mark.operators("rms_norm")
class TestCompiledCalls:
    def test_the_graph_has_the_operator(self) -> None:
        calls = targets(normalize, torch.rand(3, 4), torch.rand(4))
        assert "infini_ops.rms_norm.default" in calls

    @pytest.mark.parametrize("backend", ["eager", "aot_eager"])
    def test_it_writes_into_an_intermediate_tensor(self, backend: str) -> None:
        x, weight = torch.rand(3, 4), torch.rand(4)
        compiled = torch.compile(normalize, fullgraph=True, backend=backend)
        assert torch.equal(compiled(x, weight), normalize(x, weight))

    @pytest.mark.full_suite
    def test_generated_code_calls_it(self) -> None:
        # In a process of its own: this compiler loads libraries that print when a process ends.
        finished = subprocess.run([sys.executable, "-c", GENERATE], capture_output=True, text=True)
        assert finished.stdout == "True\n", finished.stderr

    def test_sizes_can_be_symbolic(self) -> None:
        backend = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(normalize, fullgraph=True, dynamic=True, backend=backend)
        weight = torch.rand(4)
        for rows in (3, 7, 12):
            x = torch.rand(rows, 4)
            assert torch.equal(compiled(x, weight), normalize(x, weight))
        assert backend.frame_count == 1

    @pytest.mark.parametrize(
        "call",
        [
            lambda x, weight, out: infini.ops.rms_norm(x, weight, out),
            lambda x, weight, out: infini.ops.rms_norm(x, weight, 1e-3, out),
            lambda x, weight, out: infini.ops.rms_norm(x, weight, out, eps=1e-3),
            lambda x, weight, out: infini.ops.rms_norm(out=out, weight=weight, input=x),
            lambda x, weight, out: infini.ops.rms_norm(x, weight, out, implementation_index=0),
            lambda x, weight, out: infini.ops.rms_norm(x, weight, out, stream=None),
        ],
        ids=["positions", "eps", "eps-by-name", "names", "slot", "no-stream"],
    )
    def test_arguments_are_bound_as_in_direct_calls(self, call: Callable[..., None]) -> None:
        x, weight, expected, out = (
            torch.rand(3, 4),
            torch.rand(4),
            torch.rand(3, 4),
            torch.rand(3, 4),
        )
        call(x, weight, expected)
        torch.compile(call, fullgraph=True, backend="aot_eager")(x, weight, out)
        assert torch.equal(out, expected)

    def test_it_is_without_gradients_like_a_direct_call(self) -> None:
        x, weight = torch.rand(3, 4, requires_grad=True), torch.nn.Parameter(torch.rand(4))

        def function(x: torch.Tensor) -> torch.Tensor:
            return normalize(x, weight) + x

        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        compiled(x).sum().backward()
        assert torch.equal(x.grad, torch.ones(3, 4))
        assert weight.grad is None

    def test_a_wrong_shape_raises_the_message_of_the_library(self) -> None:
        compiled = torch.compile(normalize, fullgraph=True, backend="aot_eager")
        with pytest.raises(ValueError, match="rms_norm: slot 0 takes"):
            compiled(torch.rand(3, 4), torch.rand(5))

    @pytest.mark.parametrize("options", [{"stream": 1}, {"stream": 7}])
    def test_a_stream_is_outside_of_the_graph(self, options: dict[str, int]) -> None:
        def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            infini.ops.rms_norm(x, weight, out, **options)  # the CPU ignores it
            return out

        x, weight = torch.rand(3, 4), torch.rand(4)
        assert torch.equal(torch.compile(function, backend="eager")(x, weight), function(x, weight))
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
            torch.compile(function, backend="eager", fullgraph=True)(x, weight)

    def test_an_array_is_outside_of_the_graph(self) -> None:
        array = np.ones((3, 4), np.float32)

        def function(weight: torch.Tensor) -> torch.Tensor:
            out = torch.empty(3, 4)
            infini.ops.rms_norm(array, weight, out)
            return out

        weight = torch.rand(4)
        assert torch.equal(torch.compile(function, backend="eager")(weight), function(weight))

    def test_an_exported_program_has_the_operator(self) -> None:
        class Module(torch.nn.Module):
            def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return normalize(x, weight)

        x, weight = torch.rand(3, 4), torch.rand(4)
        with torch.no_grad():
            program = torch.export.export(Module(), (x, weight))
        assert "infini_ops.rms_norm.default" in str(program.graph)
        assert torch.equal(program.module()(x, weight), normalize(x, weight))


class TestOperatorsOfTorch:
    """Operators that torch has, too: they resize their outs, and have other overloads."""

    @pytest.mark.operators("mul")
    @pytest.mark.parametrize("factor", [2.0, 3])
    def test_an_overload_of_torch_runs_outside_of_the_graph(self, factor: float) -> None:
        def function(x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            infini.ops.mul(x, factor, out)
            return out + 1

        x = torch.rand(3)
        assert torch.equal(torch.compile(function, backend="eager")(x), x * factor + 1)

    @pytest.mark.operators("add")
    def test_an_empty_out_is_resized_outside_of_the_graph(self) -> None:
        def function(x: torch.Tensor) -> torch.Tensor:
            out = torch.empty(0)
            infini.ops.add(x, x, out)
            return out + 1

        x = torch.rand(3)
        assert torch.equal(torch.compile(function, backend="aot_eager")(x), x + x + 1)

    @pytest.mark.operators("add")
    @pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
    def test_a_graph_does_not_resize(self) -> None:
        with pytest.raises(
            RuntimeError, match=r"add: out has the wrong shape: got \[2\], expected"
        ):
            torch.ops.infini_ops.add(torch.rand(3), torch.rand(3), out=torch.empty(2))

    @pytest.mark.operators("abs")
    def test_a_generated_operator_runs_outside_of_the_graph(self) -> None:
        def function(x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            infini.ops.abs(x - 1, out)
            return out + 1

        x = torch.rand(3)
        assert torch.equal(torch.compile(function, backend="eager")(x), (x - 1).abs() + 1)


@pytest.mark.operators("rms_norm")
class TestFakeTensors:
    def test_a_slot_that_the_build_lacks_is_an_error(self) -> None:
        with FakeTensorMode():
            x = torch.empty(3, 4)
            with pytest.raises(ValueError, match="implementation_index 5 is not active"):
                infini.ops.rms_norm(x, x[0], x, implementation_index=5)

    def test_a_call_checks_nothing_and_writes_nothing(self) -> None:
        with FakeTensorMode():
            result = normalize(torch.rand(3, 4), torch.rand(4))
        assert result.shape == (3, 4)

    def test_a_trace_has_the_operator(self) -> None:
        graph = make_fx(normalize, tracing_mode="fake")(torch.rand(3, 4), torch.rand(4))
        assert "infini_ops.rms_norm.default" in graph.code

    def test_a_call_that_torch_cannot_represent_is_refused(self) -> None:
        with FakeTensorMode():
            x, weight = torch.rand(3, 4), torch.rand(4)
            with pytest.raises(NotImplementedError, match=r"rms_norm: got tensors without memory"):
                infini.ops.rms_norm(x, weight, x, stream=1)

    def test_meta_tensors_of_the_dispatcher(self) -> None:
        x, weight = torch.rand(3, 4, device="meta"), torch.rand(4, device="meta")
        assert torch.ops.infini_ops.rms_norm(x, weight, out=x) is None


class TestGradients:
    @pytest.mark.operators("rms_norm")
    @pytest.mark.parametrize("name", ["input", "weight", "out"])
    def test_a_tensor_that_requires_them_is_refused(self, name: str) -> None:
        tensors = {"input": torch.rand(3, 4), "weight": torch.rand(4), "out": torch.rand(3, 4)}
        tensors[name].requires_grad_()
        with pytest.raises(RuntimeError, match=f"rms_norm: {name}: .* has no derivative"):
            torch.ops.infini_ops.rms_norm(**tensors)
        with torch.no_grad():
            torch.ops.infini_ops.rms_norm(**tensors)

    @pytest.mark.operators("cat")
    def test_so_is_one_in_a_list(self) -> None:
        tensors = [torch.rand(2), torch.rand(2, requires_grad=True)]
        with pytest.raises(RuntimeError, match=r"cat: tensors: .* has no derivative"):
            torch.ops.infini_ops.cat(tensors, out=torch.empty(4))


@pytest.mark.full_suite
def test_importing_the_library_imports_neither_it_nor_the_compiler() -> None:
    command = [sys.executable, "-c", "import sys, infini.ops; print(*sys.modules)"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"infini.ops.torch_library", "torch._dynamo"} & {*finished.stdout.split()}


@pytest.mark.operators("rms_norm")
class TestSlotFor:
    def test_it_is_the_slot_of_a_call(self) -> None:
        x, weight, out = torch.rand(3, 4), torch.rand(4), torch.empty(3, 4)
        slot = infini.ops.RmsNorm.slot_for(x, weight, out)
        infini.ops.rms_norm(x, weight, out)
        assert slot == infini.ops.last_call().slot

    def test_it_runs_nothing(self) -> None:
        out = torch.zeros(3, 4)
        infini.ops.RmsNorm.slot_for(torch.ones(3, 4), torch.ones(4), out)
        assert torch.equal(out, torch.zeros(3, 4))

    @pytest.mark.parametrize(
        "arguments",
        [
            (torch.rand(3, 4), torch.rand(5), torch.rand(3, 4)),
            (torch.rand(3, 4), torch.rand(4).to(torch.complex64), torch.rand(3, 4)),
            (torch.rand(3, 4), None, torch.rand(3, 4)),
            (torch.rand(3, 4), torch.rand(4), torch.rand(3, 4, device="meta")),
        ],
        ids=["shape", "type", "none", "device"],
    )
    def test_it_is_none_for_a_call_that_would_raise(self, arguments: tuple[Any, ...]) -> None:
        assert infini.ops.RmsNorm.slot_for(*arguments) is None
        with pytest.raises((TypeError, ValueError)):
            infini.ops.rms_norm(*arguments)

    def test_a_slot_can_be_asked(self) -> None:
        x, weight = torch.rand(3, 4), torch.rand(4)
        assert infini.ops.RmsNorm.slot_for(x, weight, x, implementation_index=0) == 0
        assert infini.ops.RmsNorm.slot_for(x, weight, x, implementation_index=3) is None

    @pytest.mark.operators("add")
    def test_torch_takes_what_no_kernel_does(self) -> None:
        x = torch.rand(3, dtype=torch.complex64)
        assert infini.ops.Add.slot_for(x, x, torch.empty_like(x)) == 8
        assert infini.ops.Add.slot_for(x, 2.0, torch.empty_like(x)) == 8
