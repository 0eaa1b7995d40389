"""The library reports the implementation that really ran."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_cpp import run_program

import infini.ops
import torch
from infini.ops import Call, last_call

X = torch.tensor([-1.0, 2.0])
PROGRAM = """
#include <infini/ops/base/abs.h>
#include <infini/ops/base/add.h>

#include <cstdio>
#include <exception>

using namespace infini::ops;

// Computes with another operator, as hand-written implementations may, or fails.
template <>
struct infini::ops::Operator<Add, Device::Type::kCpu, 3> {
  static void Run(const Tensor& input, const Tensor& other, const Scalar&, const Tensor& out) {
    Abs::Call(input, out);
    if (other.shape()[0] == 1) throw std::runtime_error("one");
  }
};
INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 3);

void Show() {
  const infini::ops::Call& call = LastCall();
  if (!call.overload) return void(std::puts("none"));
  std::printf("%s.%s %s %d\\n", call.overload->operator_name, call.overload->name,
              Info(call.device).name.data(), call.slot);
}

int main() {
  float x[] = {1, 2};
  const Tensor two(x, {2}, DataType::kFloat32), one(x, {1}, DataType::kFloat32);
  Show();
  Abs::Call(two, two);
  Show();
  Add::Call(two, two, two, {3});
  Show();
  try {
    Abs::Call(two, two);
    Add::Call(two, one, two, {3});
  } catch (const std::exception&) {
    Show();
  }
}
"""


@pytest.mark.cpu_kernels
def test_each_slot_is_named() -> None:
    out = torch.empty(2)
    infini.ops.add(X, X, out, implementation_index=8)
    assert last_call() == Call(operator="add", overload="out", device="cpu", slot=8)
    infini.ops.add(X, X, out, implementation_index=0)
    assert last_call() == Call(operator="add", overload="out", device="cpu", slot=0)


@pytest.mark.cpu_kernels
def test_without_a_chosen_slot_it_is_the_one_that_supports_the_call() -> None:
    infini.ops.add(X, X, torch.empty(2))
    assert last_call().slot == 0
    infini.ops.add(X, X.to(torch.int64), torch.empty(2))
    assert last_call().slot == 8


def test_the_overload_is_the_one_that_was_picked() -> None:
    infini.ops.clamp(X, 0, None, torch.empty(2))
    assert last_call()[:2] == ("clamp", "out")
    infini.ops.clamp(X, X, None, torch.empty(2))
    assert last_call()[:2] == ("clamp", "Tensor_out")
    infini.ops.abs_inplace(X.clone())
    assert last_call()[:2] == ("abs_inplace", "")


@pytest.mark.cpu_kernels
def test_an_implementation_that_fails_has_run() -> None:
    infini.ops.abs(X, torch.empty(2))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        infini.ops.mm(torch.ones(2, 3), torch.ones(2, 3), torch.empty(2, 2))
    assert last_call() == Call("mm", "out", "cpu", 8)
    with pytest.raises(ValueError, match="slot 0 takes aligned"):
        infini.ops.add(X, X, torch.empty(3), implementation_index=0)
    assert last_call() == Call("add", "out", "cpu", 0)


@pytest.mark.parametrize("arguments", [("text",), (X, torch.empty(2), 1)])
def test_a_call_that_finds_no_implementation_runs_none(arguments: tuple[object, ...]) -> None:
    infini.ops.neg(X, torch.empty(2))
    with pytest.raises(TypeError, match="no overload takes"):
        infini.ops.abs(*arguments)
    with pytest.raises(ValueError, match="implementation_index 5 is not active"):
        infini.ops.abs(X, torch.empty(2), implementation_index=5)
    assert last_call() == Call("neg", "out", "cpu", 8)


def test_every_thread_has_its_own() -> None:
    infini.ops.neg(X, torch.empty(2))

    def in_thread() -> tuple[Call | None, Call | None]:
        before = last_call()
        infini.ops.abs(X, torch.empty(2))
        return before, last_call()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(in_thread).result() == (None, Call("abs", "out", "cpu", 8))
    assert last_call() == Call("neg", "out", "cpu", 8)


@pytest.mark.full_suite
@pytest.mark.operators("abs", "add")
def test_from_cpp_the_outer_call_counts_also_where_it_fails(tmp_path: Path) -> None:
    source = tmp_path / "program.cc"
    source.write_text(PROGRAM)
    assert run_program(source, tmp_path) == [
        "none",
        "abs.out cpu 8",
        "add.out cpu 3",
        "add.out cpu 3",
    ]
