"""What nvcc compiles and links, as for users, without a GPU to run it on."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.built import built_once, cached_compiler
from tests.cuda.toolkit import ROOT, SOURCES, configure, find_cuobjdump, find_nvcc

pytestmark = [
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
    pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not installed"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler is installed"),
]


CHIPS = ("sm_80", "sm_90")


# Complete tests only: it takes 80 CPU-seconds.
@pytest.fixture(scope="module", params=[pytest.param(None, id="all", marks=pytest.mark.complete)])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library for NVIDIA, with the toolkit of the dependency group alone."""
    nvcc = find_nvcc()

    def compile_in(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in cached_compiler(request).items():
                patch.setenv(name, value)
            patch.setenv("CUDACXX", str(nvcc))
            patch.delenv("CUDAARCHS", raising=False)
            configured = configure(folder, "WITH_NVIDIA=ON", "WITH_CUDA_KERNELS=ON")
            assert configured.returncode == 0, configured.stderr
            command: list[str | Path] = ["ninja", "-C", folder, "infini_ops"]
            built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout
        assert "warning" not in built.stdout

    folder = built_once(tmp_path_factory, "nvidia", compile_in)
    return folder / "src" / "libinfini_ops.so"


def include_options(library: Path) -> list[str]:
    """The options for the headers of the sources and of the build."""
    build = library.parents[1]
    return [f"-I{folder}" for folder in (ROOT / "src", ROOT / "src" / "include", build / "include")]


@pytest.fixture(scope="module")
def kernels(library: Path) -> dict[str, dict[str, str]]:
    """By chip, each kernel's mangled name and its use of resources."""
    command: list[str | Path] = [find_cuobjdump(), "-res-usage", library]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[str, str]] = defaultdict(dict)
    pattern = r"arch = (\w+)|Function (\w+):\s+(REG:.*)"
    chip = ""
    for architecture, name, resources in re.findall(pattern, usage):
        if architecture:
            chip = architecture
        else:
            found[chip][name] = resources
    return found


def test_every_kernel_is_there_for_every_chip(kernels: dict[str, dict[str, str]]) -> None:
    pattern = r"__global__\s+void\s+(?:__launch_bounds__\(.*\)\s*)?(\w+)\("
    files = sorted([*SOURCES.glob("*.cu"), *SOURCES.glob("*.h")])
    names = {name for path in files for name in re.findall(pattern, path.read_text())}
    assert {"DenseKernel", "CopyKernel", "CastKernel"} <= names
    assert sorted(kernels) == sorted(CHIPS)
    for chip in CHIPS:
        lacking = [name for name in names if not any(name in kernel for kernel in kernels[chip])]
        assert lacking == []


def test_the_chips_have_the_same_kernels(kernels: dict[str, dict[str, str]]) -> None:
    assert {frozenset(kernels[chip]) for chip in CHIPS} == {frozenset(kernels[CHIPS[0]])}


@pytest.mark.parametrize(
    ("operator", "types"), [("Add", 8), ("Mul", 8), ("Silu", 4), ("Gelu", 3), ("GeluTanh", 3)]
)
def test_every_type_has_a_kernel_for_every_layout(
    kernels: dict[str, dict[str, str]], operator: str, types: int
) -> None:
    for chip in CHIPS:
        for kernel in ("DenseKernel", "RowsKernel", "StridedKernel"):
            found = re.findall(rf"{kernel}\w*\d{operator}Function", " ".join(kernels[chip]))
            assert len(found) == types


def test_no_kernel_spills_registers(kernels: dict[str, dict[str, str]]) -> None:
    for chip in CHIPS:
        assert [name for name, usage in kernels[chip].items() if "STACK:0 " not in usage] == []


@pytest.fixture(scope="module")
def dense_kernels(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The instructions of the kernels of `add` for dense tensors, by mangled name."""
    cubin = tmp_path_factory.mktemp("add") / "add.cubin"
    command: list[str | Path] = [
        *(find_nvcc(), "-std=c++17", "-O3", "-arch=sm_90", "-DINFINI_OPS_ACCELERATOR=kNvidia"),
        *(*include_options(library), f"-I{SOURCES / 'vendor' / 'nvidia'}"),
        *("-cubin", SOURCES / "add.cu", "-o", cubin),
    ]
    subprocess.run(command, check=True)
    command = [find_cuobjdump(), "-sass", cubin]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    functions = re.findall(r"Function : (\w+)\n(.*?)\n\t*\.{6}", listed, re.DOTALL)
    return {
        name: re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@\S+\s+)?([A-Z][\w.]*)", text)
        for name, text in functions
        if "DenseKernel" in name
    }


def test_every_type_is_read_and_written_16_bytes_at_a_time(
    dense_kernels: dict[str, list[str]],
) -> None:
    """A branch between the loads would make each of them wait for the one before it."""
    assert len(dense_kernels) == 8
    for name, instructions in dense_kernels.items():
        match = re.search(r"DenseKernelILi\d+ELi(\d+)E", name)
        assert match is not None
        steps = int(match[1])
        loads = [i for i, each in enumerate(instructions) if each == "LDG.E.128"]
        assert len(loads) == 2 * steps, name
        assert instructions.count("STG.E.128") == steps, name
        between = instructions[loads[0] : loads[-1]]
        assert not {"BRA", "BSSY", "BSYNC", "EXIT"} & set(between), name


def test_later_chips_can_take_it(library: Path) -> None:
    """By way of PTX."""
    command: list[str | Path] = [find_cuobjdump(), "--list-ptx", library]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"sm_\d+", listed)) == {"sm_90"}


def test_the_runtime_inside_stays_inside(library: Path) -> None:
    """Torch's own, of another version perhaps, would be called in its place or the other way."""
    command: list[str | Path] = ["nm", "-D", "--defined-only", library]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "infini" in names
    assert " cuda" not in names
    command = ["readelf", "-d", library]
    needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "libcudart" not in needed


@pytest.fixture(scope="module")
def program_says(library: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a C++ program reads from the library and gets from it where there is no GPU."""
    program = tmp_path_factory.mktemp("program") / "without_gpu"
    source = Path(__file__).parent / "without_gpu.cc"
    folders = include_options(library)
    paths = [f"-L{library.parent}", f"-Wl,-rpath,{library.parent}", "-linfini_ops"]
    command: list[str | Path] = ["c++", "-std=c++17", *folders, source, "-o", program, *paths]
    subprocess.run(command, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_it_loads_without_a_gpu(program_says: list[str]) -> None:
    operators = ("add", "cast", "cat", "mul", "swiglu")
    assert [f"{name}: 0" for name in operators] == program_says[: len(operators)]


def test_a_call_without_a_gpu_says_so(program_says: list[str]) -> None:
    assert re.fullmatch(
        r"failed: cudaGetDevice\w* failed with cudaError(NoDevice|InsufficientDriver): .+",
        program_says[-2],
    )


def test_what_no_slot_takes_is_refused_before_anything_runs(program_says: list[str]) -> None:
    assert program_says[-1] == (
        "refused: add: slot 0 takes aligned strided tensors of one real type, an alpha that the "
        "type can hold, and an out of the shape that they broadcast to; out must not overlap "
        "itself, or an input unless both are the same view; got float32[4], int32[4] "
        "and out float32[4]"
    )


@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.*")), ids=lambda path: path.name)
def test_sources_name_no_vendor(path: Path) -> None:
    """Only vendor/ does, so that other vendors' compilers can take the same files."""
    code = re.sub(r"//.*", "", path.read_text())
    assert re.findall(r"\bcuda[A-Z]\w*|\b__nv_\w+|<<<|<cuda\w*\.h>", code) == []
