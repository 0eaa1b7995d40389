"""The device of docs/bring-up-a-device.md: torch works on it, or the report names what is missing.

It has the kernels that the page lists, and what the generator adds. They are those of the simulated
device, whose other kernels are compiled, but not registered.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from codegen.aten import find_torch
from codegen.backend import coverage
from codegen.backend.emit import generate_backend
from tests.built import built_once, cached_compiler
from tests.codegen.test_docs_bring_up_a_device import documents

ROOT = Path(__file__).resolve().parents[2]
SIMULATED = ROOT / "tests" / "simulated"
KERNELS = ("arithmetic", "copies", "generator", "guard", "hooks", "memory", "tensors")
UNITS: dict[str, list[Path | str]] = {
    "kernels": [
        *(SIMULATED / "src" / f"{name}.cc" for name in KERNELS),
        *("RegisterPrivateUse1.cpp", "RegisterPrivateUse1Runtime.cpp"),
    ],
    "autograd": [SIMULATED / "src" / "pooling.cc", "RegisterAutogradPrivateUse1.cpp"],
    "fallback": ["RegisterPrivateUse1Fallback.cpp"],
}

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="c++ is not installed")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the device."""
    torch = pytest.importorskip("torch")
    environment = cached_compiler(request)

    def build(folder: Path) -> None:
        generate(folder)
        root = Path(torch.__file__).parent
        compile_units(folder, root, environment, UNITS)
        link(folder, root, dict.fromkeys(UNITS, folder))

    return built_once(tmp_path_factory, "minimal-device", build)


@pytest.fixture(scope="session")
def bare_device(
    device: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same, but the fallback unit leaves all kernels of torch in place."""
    torch = pytest.importorskip("torch")
    environment = cached_compiler(request)

    def build(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coverage, "ONLY_ON_CPU", frozenset())
            generate(folder)
        root = Path(torch.__file__).parent
        compile_units(folder, root, environment, ["fallback"])
        link(folder, root, dict.fromkeys(UNITS, device) | {"fallback": folder})

    return built_once(tmp_path_factory, "bare-device", build)


def generate(folder: Path) -> None:
    source = folder / "backend.yaml"
    text = "".join(documents()).replace("cpp_namespace: acme", "cpp_namespace: simulated")
    source.write_text(text, encoding="utf-8")
    torch = find_torch(None)
    generate_backend(SIMULATED / "backend.yaml", folder / "all", torch)
    generate_backend(source, folder / "generated", torch)
    # It declares all kernels of the simulated device.
    shutil.copy(folder / "all" / "PrivateUse1NativeFunctions.h", folder / "generated")


def compile_units(
    folder: Path, torch: Path, environment: dict[str, str], units: Iterable[str]
) -> None:
    """Compile the units side by side."""
    compiler = [*filter(None, [environment.get("CMAKE_CXX_COMPILER_LAUNCHER")]), "c++"]
    include = torch / "include"
    running = []
    for unit in units:
        lines = [f'#include "{file}"\n' for file in UNITS[unit]]
        (folder / f"{unit}.cc").write_text("".join(lines), encoding="utf-8")
        running.append(
            subprocess.Popen(
                [
                    *(*compiler, "-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden"),
                    *(f"-I{SIMULATED / 'src'}", "-Igenerated", "-isystem", str(include)),
                    *("-isystem", str(include / "torch" / "csrc" / "api" / "include")),
                    *("-c", f"{unit}.cc", "-o", f"{unit}.o"),
                ],
                cwd=folder,
                env={**os.environ, **environment},
            )
        )
    assert [each.wait() for each in running] == [0] * len(running)


def link(folder: Path, torch: Path, objects: Mapping[str, Path]) -> None:
    """Make the package, with a library from the object of each unit in the named folder."""
    package = folder / "simulated_device"
    shutil.copytree(SIMULATED / "src" / "simulated_device", package)
    for module in ("compile.py", "runtime.py"):
        shutil.copy(folder / "generated" / "python" / module, package)
    subprocess.run(
        [
            *("c++", "-shared", "-o", package / "libsimulated_device.so"),
            *(place / f"{unit}.o" for unit, place in objects.items()),
            *(f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", "-ltorch"),
        ],
        check=True,
    )


def run(
    device: Path, *command: str | Path, stdin: str = "", timeout: int = 900, **variables: str
) -> str:
    finished = subprocess.run(
        [sys.executable, *command],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": str(device), **variables},
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.parametrize(
    "samples", [pytest.param("3", id="few"), pytest.param("", id="all", marks=pytest.mark.complete)]
)
def test_every_operator_is_right_or_reported_as_missing(device: Path, samples: str) -> None:
    pytest.importorskip("expecttest", reason="torch's own samples need it")
    program = SIMULATED / "opinfo.py"
    found = json.loads(run(device, program, device, *filter(None, [samples])))
    report = json.loads((device / "generated" / "coverage.json").read_text(encoding="utf-8"))
    missing = {each["name"] for each in report["overloads"] if each["status"] == "missing"}
    assert found["entries"] > 650
    wrong = [each for each in found["failures"] if each["operator"] not in missing]
    assert wrong == []
    # Sparse tensors have other keys. Torch compiles the others for CUDA, at run time.
    refused = {each for each in found["refused_by_the_cpu"] if not each.startswith("jiterator_")}
    assert refused <= {"sparse_sampled_addmm", "sparse_mm_reduce"}


# The CPU refuses it, too, where its processor has no NNPACK.
REFUSED_BY_SOME_CPUS = {"_nnpack_spatial_convolution"}


def called(device: Path, overloads: Iterable[str], *options: str) -> dict[str, Any]:
    """How calls of overloads ended on the device, by ``tests/simulated/overloads.py``."""
    names = " ".join(overloads)
    paths = os.pathsep.join(map(str, (device, ROOT)))
    program = SIMULATED / "overloads.py"
    ends = run(device, program, device, *options, stdin=names, timeout=600, PYTHONPATH=paths)
    found: dict[str, Any] = json.loads(ends)
    return found


UNDEFINED = """
from tests.simulated import overloads, opinfo

backward = overloads.find("_grid_sampler_2d_cpu_fallback_backward")
names = ("grad_output", "input", "grid")
arguments = dict.fromkeys(names, overloads._Drawn(7)) | {
    "interpolation_mode": -1, "padding_mode": 2, "align_corners": True
}
first = overloads.call(backward, arguments, "cpu")
for _ in range(300):
    opinfo.same(overloads.call(backward, arguments, "cpu"), first)
"""


def test_what_a_kernel_does_not_write_is_the_same_in_each_call(tmp_path: Path) -> None:
    """It is compared with the CPU's. This kernel writes nothing in a mode that does not exist."""
    pytest.importorskip("expecttest", reason="torch.testing needs it")
    pytest.importorskip("torch")
    run(tmp_path, "-c", UNDEFINED, PYTHONPATH=str(ROOT))


@pytest.mark.complete
def test_the_fallback_unit_replaces_the_kernels_of_torch_that_fail(
    device: Path, bare_device: Path
) -> None:
    """Without it these calls fail, or end the process; with it the results are the CPU's."""
    pytest.importorskip("expecttest", reason="torch.testing needs it")
    replaced = sorted(coverage.ONLY_ON_CPU - REFUSED_BY_SOME_CPUS)
    without, with_it = called(bare_device, replaced), called(device, replaced)
    assert [name for name in replaced if "failed" not in without[name]] == []
    assert {name: each for name, each in with_it.items() if "failed" in each} == {}
    assert [name for name in replaced if not with_it[name]["worked"]] == []


def test_what_is_missing_refuses_every_call(device: Path) -> None:
    pytest.importorskip("expecttest", reason="torch.testing needs it")
    report = json.loads((device / "generated" / "coverage.json").read_text(encoding="utf-8"))
    reasons = {
        each["name"]: each["reason"] for each in report["overloads"] if each["status"] == "missing"
    }
    assert len(reasons) > 150
    found = called(device, reasons, "--any-arguments")
    assert [name for name in found if not found[name]] == ["record_stream"]  # no stream is drawn
    ends = {
        name: each["end"]
        for name, each in found.items()
        if each and not each["end"].startswith("NotImplementedError")
    }
    # The fallback runs these, and torch refuses to make their results part of the device.
    runs = ("a view, which", "converts to a layout")
    refused = {name for name, end in ends.items() if end.startswith("RuntimeError")}
    assert {name: ends[name] for name in ends if not reasons[name].startswith(runs)} == {}
    assert refused == ends.keys()


NETWORKS = """
import copy, simulated_device, torch
from torch import nn

simulated_device.load("acme")

def check(make, *shapes):
    torch.manual_seed(0)
    here = make()
    there = copy.deepcopy(here).to("acme")
    inputs = [torch.randn(shape) for shape in shapes]
    results = []
    for module, device in ((here, "cpu"), (there, "acme")):
        arguments = [each.detach().to(device).requires_grad_() for each in inputs]
        output = torch.utils._pytree.tree_leaves(module(*arguments))
        sum(each.pow(2).sum() for each in output if each.requires_grad).backward()
        gradients = [each.grad for each in [*arguments, *module.parameters()]]
        results.append([*output, *gradients])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(other.cpu(), one, rtol=1e-4, atol=1e-4)

class SelfAttention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x)

class Bags(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.bags = nn.EmbeddingBag(10, 3, mode=mode)

    def forward(self, x):
        indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9], device=x.device)
        return self.bags(indices, torch.tensor([0, 4], device=x.device)) * x

for dim, names in enumerate((("Conv1d", "ConvTranspose1d"), ("Conv2d", "ConvTranspose2d"),
                             ("Conv3d", "ConvTranspose3d")), 1):
    for name in names:
        for options in ({"groups": 2, "stride": 2, "padding": 1}, {"bias": False}):
            check(lambda: getattr(nn, name)(4, 6, 3, **options), (2, 4, *(7,) * dim))
for cell in (nn.RNNCell, nn.LSTMCell, nn.GRUCell):
    check(lambda: cell(4, 5), (3, 4))
for network in (nn.RNN, nn.LSTM, nn.GRU):
    check(lambda: network(4, 5, 2, bidirectional=True), (3, 2, 4))
    check(lambda: network(4, 5, bias=False), (3, 2, 4))
check(lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (2, 3, 4, 4))
check(lambda: SelfAttention(8, 2, batch_first=True), (2, 3, 8))
check(lambda: nn.Transformer(8, 2, 1, 1, 16, dropout=0, batch_first=True), (2, 3, 8), (2, 4, 8))
for mode in ("sum", "mean", "max"):
    check(lambda: Bags(mode), (2, 3))
"""

STEPS = """
import simulated_device, torch
from torch import nn

simulated_device.load("acme")

def train(device, optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(36, 2)).to(device)
    images, labels = torch.randn(8, 1, 8, 8).to(device), torch.arange(8, device=device) % 2
    optimizer = optimizer(model.parameters(), lr=0.02)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()

for optimizer in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
    here, there = train("cpu", optimizer), train("acme", optimizer)
    assert abs(here - there) < 1e-4, (here, there)
"""

GENERATORS = """
import simulated_device, torch

simulated_device.load("acme")
ones = torch.ones(9, device="acme")
for draw in (
    lambda generator: torch.rand(9, device="acme", generator=generator),
    lambda generator: torch.randperm(99, device="acme", generator=generator),
    lambda generator: torch.multinomial(ones, 5, generator=generator),
    lambda generator: torch.poisson(ones * 99, generator=generator),
    lambda generator: torch.empty(9, device="acme").exponential_(generator=generator),
):
    for generator in (None, torch.Generator("acme")):
        seed = generator.manual_seed if generator else torch.acme.manual_seed
        values = []
        for _ in range(2):
            seed(1)
            values.append([draw(generator).tolist() for _ in range(2)])
        assert values[0] == values[1], values
        assert values[0][0] != values[0][1], values
"""

TENSORS = """
import simulated_device, torch

simulated_device.load("acme")
x, y = torch.empty(0, device="acme"), torch.arange(4.0, device="acme")
x.set_(y)
y[0] = 9
assert x.tolist() == [9, 1, 2, 3]
assert x.data_ptr() == y.data_ptr()
assert x.set_().numel() == 0
z = torch.tensor([1 + 2j, 3 - 1j], device="acme")
z.real.mul_(2)
assert "2.+2.j" in repr(z), repr(z)
assert y.unfold(0, 2, 1)[1].tolist() == [1, 2]
with torch.autocast("acme", dtype=torch.bfloat16):
    assert (torch.ones(2, 2, device="acme") @ torch.ones(2, 2, device="acme")).sum().item() == 8
"""

VIEWS = """
import simulated_device, torch
from torch.utils._python_dispatch import TorchDispatchMode

simulated_device.load("acme")

class Observer(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})

def copies(z):
    views = [z.conj(), z.conj().imag, torch._neg_view(z.conj()), torch._neg_view(z)]
    yield from (view.cpu() for view in views)
    yield from (view.clone() for view in views)
    conj, neg = torch.Tensor.conj, torch._neg_view
    for view, source in ((conj, z), (conj, z.conj()), (neg, z)):
        for values in (source, source.cpu()):
            written = z.clone()
            view(written).copy_(values)
            yield written

host = torch.tensor([1 + 2j, 3 - 1j])
expected = list(copies(host))
for mode in (torch.no_grad(), Observer()):
    with mode:
        found = list(copies(host.to("acme")))
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.tolist() == other.tolist(), (mode, index, one, other)
"""

MEMORY = """
import simulated_device, torch

simulated_device.load("acme")
memory = torch.accelerator
device = torch.device("acme:1")
assert memory.memory_allocated(device) == 0
first, second = (torch.empty(1000, dtype=torch.uint8, device=device) for _ in range(2))
assert memory.memory_allocated(device) == memory.memory_reserved(device) == 2048
assert memory.memory_allocated() == 0, "of another device"
free, total = memory.get_memory_info(device)
assert total - free == 2048
del first
memory.empty_cache()
assert (memory.memory_allocated(device), memory.max_memory_allocated(device)) == (1024, 2048)
memory.reset_peak_memory_stats(device)
assert memory.max_memory_allocated(device) == 1024
try:
    torch.empty(2 * total, dtype=torch.uint8, device=device)
except torch.OutOfMemoryError:
    pass
stats = memory.memory_stats(device)
assert (stats["allocation.all.allocated"], stats["allocation.all.freed"]) == (2, 1)
assert (stats["allocated_bytes.all.freed"], stats["num_ooms"]) == (1024, 1)
memory.reset_accumulated_memory_stats(device)
stats = memory.memory_stats(device)
assert (stats["allocated_bytes.all.freed"], stats["num_ooms"]) == (0, 0)
assert memory.memory_allocated(device) == 1024
assert torch.ones(4).pin_memory().is_pinned()
memory.empty_host_cache()
"""

COMPILED = """
import simulated_device, torch

simulated_device.load("acme")
import simulated_device.compile
from torch import nn

def views(x):
    y = x.clone()
    y[1:] += 1
    return y.view(2, 2).t().contiguous().softmax(0)[:, 1].exp()

device = torch.device("acme:1")
torch.manual_seed(0)
x = torch.rand(4, device=device, requires_grad=True)
network = nn.Sequential(nn.Unflatten(0, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(),
                        nn.Linear(1, 8), nn.GELU(), nn.LayerNorm(8)).to(device)
for function in (
    lambda x: (x * 2).relu().sum(),
    views,
    network,
    lambda x: x @ x.view(4, 1),
    lambda x: x * 2 if x.sum() > 0 else x * 3,
    lambda x: (x * 2).cpu().sin().to(device),
    lambda x: torch.cat([x, x]).sort()[0].cumsum(0),
    lambda x: torch.rand_like(x) * x + torch.arange(4, device=device),
):
    def values(function):
        torch.manual_seed(0)
        result = function(x)
        assert result.device == device
        return [result.tolist(), *torch.autograd.grad(result.pow(2).sum(), x)[0].tolist()]

    expected = values(function)
    for options in ({"mode": "lite"}, {"backend": "aot_eager"}, {"backend": "eager"}):
        torch._dynamo.reset()
        found = values(torch.compile(function, **options))
        assert found == expected, (options, found, expected)
"""

NOT_COMPILED = """
import simulated_device, torch

simulated_device.load("acme")
import simulated_device.compile

x = torch.ones(4, device="acme")
for function, operators in (
    (lambda x: (x * 2).relu(), "aten.mul.Tensor, aten.relu.default"),
    (lambda x: x.sum(), "aten.sum.default"),
    (lambda x: x.softmax(0), "aten.amax.default"),
):
    torch._dynamo.reset()
    try:
        torch.compile(function)(x)
    except torch._inductor.exc.InductorError as error:
        [line] = (line for line in str(error).splitlines() if "code generator" in line)
        assert "acme has no code generator, which inductor needs for " + operators in line, line
        assert 'Call torch.compile with mode="lite", or with backend="aot_eager"' in line, line
    else:
        raise AssertionError("compiled")
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(NETWORKS, id="networks"),
        pytest.param(STEPS, id="training"),
        pytest.param(GENERATORS, id="random-numbers"),
        pytest.param(TENSORS, id="tensors"),
        pytest.param(VIEWS, id="conjugate-and-negative-views"),
        pytest.param(MEMORY, id="memory"),
        pytest.param(COMPILED, id="compiled"),
        pytest.param(NOT_COMPILED, id="not-compiled"),
    ],
)
def test_what_every_device_is_used_for(device: Path, program: str) -> None:
    # Without torch's pool of compilers: its end, beside that of the interpreter, once was a crash.
    run(device, "-c", program, TORCHINDUCTOR_COMPILE_THREADS="1")


# torch's own device tests, of all entries of OpInfo or of those with the names in the arguments.
DEVICE_TESTS = """
import itertools, json, sys, unittest

import opinfo, simulated_device, torch

simulated_device.load("acme")

from codegen.installed.device_tests import skips
from torch.testing._internal.common_device_type import (
    OpDTypes, PrivateUse1TestBase, instantiate_device_type_tests, ops)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase

coverage, *names = sys.argv[1:]
entries = [each for each in op_db if each.full_name in names or not names]
torch.set_num_threads(1)
PrivateUse1TestBase.setUpClass()
if coverage:
    PrivateUse1TestBase.set_test_configs(op_overrides=skips(coverage, entries))

class TestOperators(TestCase):
    @ops(entries, dtypes=OpDTypes.any_one)
    def test_result(self, device, dtype, op):
        samples = itertools.islice(op.sample_inputs(device, dtype), 3)
        arguments = (((each.input, *each.args), each.kwargs) for each in samples)
        self.assertTrue(sum(opinfo.check(op, "functional", op, each) for each in arguments))

instantiate_device_type_tests(TestOperators, globals(), only_for="privateuse1")
result = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromTestCase(TestOperatorsACME).run(result)
print(json.dumps({
    "run": result.testsRun,
    "failed": [f"{test}: {text}" for test, text in [*result.failures, *result.errors]],
    "other": len(result.expectedFailures) + len(result.unexpectedSuccesses),
    "skipped": {
        test.id().partition("test_result_")[2].partition("_acme")[0]: reason
        for test, reason in result.skipped
    },
}))
"""


def run_device_tests(device: Path, coverage: Path | str, *names: str) -> dict[str, Any]:
    paths = os.pathsep.join(map(str, (device, SIMULATED, ROOT)))
    # All entries took 158 s on two cores that others used, and once more than 300 s.
    out = run(device, "-c", DEVICE_TESTS, coverage, *names, PYTHONPATH=paths)
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def test_torchs_own_device_tests_skip_what_is_missing(device: Path) -> None:
    pytest.importorskip("expecttest", reason="torch's device tests need it")
    # Torch 2.13 ignores the skip of the first entry if setUpClass is not called before.
    names = ("to_sparse", "sum")
    assert len(run_device_tests(device, "", *names)["failed"]) == 1
    found = run_device_tests(device, device / "generated" / "coverage.json", *names)
    assert (found["run"], found["failed"], found["other"]) == (2, [], 0)
    [(name, reason)] = found["skipped"].items()
    assert (name, reason.partition(" (")[0]) == ("to_sparse", "missing: _to_sparse")


@pytest.mark.complete
def test_all_of_torchs_own_device_tests_pass_or_are_reported_as_missing(device: Path) -> None:
    pytest.importorskip("expecttest", reason="torch's device tests need it")
    found = run_device_tests(device, device / "generated" / "coverage.json")
    assert (found["failed"], found["other"]) == ([], 0)
    report = json.loads((device / "generated" / "coverage.json").read_text(encoding="utf-8"))
    reasons = {each["name"]: each.get("reason") for each in report["overloads"]}
    skipped = {
        name: reason.removeprefix("missing: ")
        for name, reason in found["skipped"].items()
        if reason.startswith("missing: ")
    }
    assert skipped.keys() == {"to_sparse", "sparse_sampled_addmm", "sparse_mm_reduce"}
    for reason in skipped.values():
        overload = reason.partition(" (")[0]
        assert f"{overload} ({reasons[overload]})" in reason
    # Torch compiles some for CUDA, at run time, and skips some on all devices.
    assert found["run"] - len(found["skipped"]) > 650
