"""``python -m codegen triton``: what it compiles and when, and the errors for mistakes."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen import cli
from codegen.errors import GenerationError
from codegen.output import SyncResult
from codegen.triton import compiler
from codegen.triton.compiler import Toolchain, find_toolchain, jobs_of
from codegen.triton.generation import Request, generate
from codegen.triton.spec import OPERATORS, find_sources, read_plan
from tests.triton.triton_workplace import ROOT

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def scale(input, out, count, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    tl.store(out + index, tl.load(input + index, mask) * factor, mask)
"""
BUILD = """
from codegen.triton.spec import FieldKind, Operator, Variant

def make(name, block, divisible=()):
    return Variant(
        name=name,
        kernel="scale",
        types={"input": "*fp32", "out": "*fp32", "count": "i32", "factor": "fp32"},
        constants={"BLOCK": block},
        divisible=divisible,
        grid=("cdiv(count, BLOCK)",),
    )

OPERATOR = Operator(
    fields={
        "input": FieldKind.POINTER,
        "out": FieldKind.POINTER,
        "count": FieldKind.INTEGER,
        "factor": FieldKind.FLOAT,
    },
    variants=lambda target: [make("aligned", 256, ("input", "out")), make("any", 128)],
)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one small operator."""
    folder = tmp_path / "ops" / "scale"
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "build.py").write_text(BUILD)
    return folder.parent


Generate = Callable[..., SyncResult]


@pytest.fixture
def run(tree: Path, tmp_path: Path, _triton: None) -> Generate:
    """Generates from the tree; the options of a request can be given."""

    def generate_tree(folder: str = "out", *, dry_run: bool = False, **options: Any) -> SyncResult:
        request = Request(targets=(80,), workers=1, cache=tmp_path / "cache", operators=tree)
        return generate(
            dataclasses.replace(request, **options),
            tmp_path / folder,
            dry_run=dry_run,
        )

    return generate_tree


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_only_what_changed_is_compiled(run: Generate, tree: Path, tmp_path: Path) -> None:
    first = run()
    assert first.summary.endswith(": 1 operator, 2 kernels for sm_80, 2 compiled")
    names = {"triton/scale.c", "triton/scale.h", "triton/targets.h", "triton/kernels.json"}
    assert set(first.written) == names
    # The folder is up to date, so the cache is not touched either.
    (tmp_path / "cache").rename(tmp_path / "kept")
    assert set(run().unchanged) == names
    assert not (tmp_path / "cache").exists()
    (tmp_path / "kept").rename(tmp_path / "cache")

    assert run("other").summary.endswith("2 kernels for sm_80, 0 compiled")
    assert run(targets=(80, 90)).summary.endswith("4 kernels for sm_80, sm_90, 2 compiled")
    edit(tree / "scale" / "build.py", '"any", 128', '"any", 512')
    assert run().summary.endswith("2 kernels for sm_80, 1 compiled")
    edit(tree / "scale" / "kernel.py", "* factor", "+ factor")
    changed = run()
    assert changed.summary.endswith("2 kernels for sm_80, 2 compiled")
    assert set(changed.unchanged) == {"triton/scale.h", "triton/targets.h"}


def test_a_damaged_entry_is_compiled_again(run: Generate, tmp_path: Path) -> None:
    run()
    expected = (tmp_path / "out" / "triton" / "scale.c").read_bytes()
    cut, changed = sorted((tmp_path / "cache").rglob("*.kernel"))
    cut.write_bytes(cut.read_bytes()[:-100])
    changed.write_bytes(changed.read_bytes().replace(b'"shared": 0', b'"shared": 1'))
    assert run("again").summary.endswith("2 compiled")
    assert run("third").summary.endswith("0 compiled")
    for folder in ("again", "third"):
        assert (tmp_path / folder / "triton" / "scale.c").read_bytes() == expected


def test_parallel_and_serial_give_the_same(run: Generate, tmp_path: Path) -> None:
    for workers in (1, 3):
        run(f"out{workers}", workers=workers, targets=(80, 90), cache=tmp_path / f"cache{workers}")
    first, second = (sorted((tmp_path / f"out{each}").rglob("*.*")) for each in (1, 3))
    assert [path.name for path in first] == [path.name for path in second]
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_an_operator_that_is_gone(run: Generate, tree: Path, tmp_path: Path) -> None:
    (tree / "scale").rename(tree / "multiply")
    run()
    (tree / "multiply").rename(tree / "scale")
    changes = run()
    assert set(changes.removed) == {"triton/multiply.c", "triton/multiply.h"}
    assert not (tmp_path / "out" / "triton" / "multiply.c").exists()


def test_a_cache_that_can_not_be_written(run: Generate, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = run(cache=tmp_path / "file")
    (note,) = outcome.notes
    assert note.startswith(f"{tmp_path / 'file'}: ")
    assert f"kernels are not cached (set {compiler.CACHE_VARIABLE})" in note
    assert outcome.written


def test_a_dry_run_writes_nothing(run: Generate, tmp_path: Path) -> None:
    assert len(run(dry_run=True).written) == 4
    assert not (tmp_path / "out").exists()


def test_the_key_knows_the_tools(tree: Path) -> None:
    (source,) = find_sources(tree)
    job, _ = jobs_of([read_plan(source, [80])])
    toolchain = Toolchain(python=("python",), version="3.9.0", assemblers="ptxas 13.4")
    same = dataclasses.replace(toolchain, python=("another", "-I"))
    assert job.key(toolchain) == job.key(same)
    for other in (
        dataclasses.replace(toolchain, version="3.9.1"),
        dataclasses.replace(toolchain, assemblers="ptxas 13.5"),
    ):
        assert job.key(other) != job.key(toolchain)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(compiler.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiler.default_folder() == tmp_path / "infini-ops" / "triton"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compiler.default_folder() == tmp_path / ".cache" / "infini-ops" / "triton"
    monkeypatch.setenv(compiler.CACHE_VARIABLE, "/elsewhere")
    assert compiler.default_folder() == Path("/elsewhere")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("OPERATOR =", "OPERATR =", r"build\.py failed:\n(.*\n)*.*'build' has no attribute 'OPERA"),
        (
            '"any"',
            '"aligned"',
            "variant 'aligned' has the name of another variant; give it a unique name",
        ),
        ('"any"', '"an y"', "variant 'an y' is not a C identifier; rename it"),
        (
            "cdiv(count",
            "cdiv(cuont",
            "uses 'cuont' in .*, which is not a field or constant; did you mean 'count'?",
        ),
        ('["', '"', "SyntaxError"),
        (
            '"count": "i32"',
            '"count": "fp32"',
            "passes the field 'count' of kind INTEGER as the type 'fp32'",
        ),
        ('"count": "i32"', '"cuont": "i32"', "takes 'cuont', which is not a field of the request"),
        ('"out"))', '"BLOCK"))', "has 'BLOCK' divisible; expected one of input, out, count"),
        ('grid=("cdiv(count, BLOCK)",)', "grid=()", "has a grid of 0 dimensions; expected 1 to 3"),
        (
            'kernel="scale",',
            'kernel="scale", data_types={"count": ["kInt8"]},',
            "has data types of 'count', which is not a field of kind DATA_TYPE",
        ),
    ],
)
def test_mistakes_in_a_build(tree: Path, old: str, new: str, message: str) -> None:
    if old == '["':
        old, new = "variants=lambda target: [", "variants=lambda target: "
    edit(tree / "scale" / "build.py", old, new)
    (source,) = find_sources(tree)
    with pytest.raises(GenerationError, match=message):
        read_plan(source, [80])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("* factor", "* facter", "variant 'aligned', target 80:\n(.*\n)*.*facter is not defined"),
        (
            "count, factor",
            "count, more, factor",
            r"scale also takes \['more'\]; add them to types or constants",
        ),
        ("count, factor", "factor", r"scale takes no \['count'\]; remove them"),
        ("def scale", "def scala", "has no attribute 'scale'"),
        (
            "import triton\n",
            "import triton\n1 / 0\n",
            r"kernel\.py.*, line 3, (.*\n)+.*ZeroDivision",
        ),
        ("import triton\n", "import os; os._exit(3)\n", "Triton ended unexpectedly"),
    ],
)
def test_mistakes_in_a_kernel(
    run: Generate, tree: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tree / "scale" / "kernel.py"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(GenerationError, match=message) as caught:
        run()
    assert "worker.py" not in str(caught.value)  # no place but the author's
    assert not (tmp_path / "out").exists()


def test_no_operators(tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match=r"no \*/build\.py in it; expected one for each"):
        find_sources(tmp_path)


@pytest.mark.parametrize("name", ["build.py", "kernel.py"])
def test_a_part_of_an_operator_is_missing(tree: Path, name: str) -> None:
    (tree / "scale" / name).unlink()
    with pytest.raises(
        GenerationError, match=rf"scale/{name}: no such file; expected one for each"
    ):
        _ = [read_plan(source, [80]) for source in find_sources(tree)]


def test_an_operator_can_use_the_kernels_of_another(run: Generate, tree: Path) -> None:
    (tree / "shrink").mkdir()
    build = BUILD + "\nOPERATOR = dataclasses.replace(OPERATOR, kernels_of='scale')\n"
    (tree / "shrink" / "build.py").write_text("import dataclasses\n" + build)
    assert run().summary.endswith(": 2 operators, 4 kernels for sm_80, 2 compiled")
    # Also if the other operator is left out.
    edit(tree / "scale" / "kernel.py", "* factor", "/ factor")
    alone = run(without=frozenset({"scale"}))
    assert alone.summary.endswith(": 1 operator, 2 kernels for sm_80, 2 compiled")


def test_the_kernels_have_the_numbers_of_gelu() -> None:
    """Python cannot include the C++ header."""
    kernel = (OPERATORS / "swiglu" / "kernel.py").read_text()
    header = (ROOT / "src" / "core" / "gelu.h").read_text()
    fitted = {float.fromhex(each) for each in re.findall(r"(0x1[.\dA-Fa-f]*p[+-]\d+)f", header)}
    written = {float(np.float32(each)) for each in re.findall(r"\b\d+\.\d+", kernel)}
    factor = math.sqrt(8 / math.pi)
    of_tanh = {float(np.float32(each)) for each in (factor, factor * 0.044715)}
    assert len(fitted) == 11
    assert fitted | of_tanh == written - {0.0, 15.0}


def test_a_python_without_triton(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    python = str(tmp_path / "bin" / "python")
    with pytest.raises(GenerationError, match=f"{python} has no Triton. Run `{python} -m pip inst"):
        find_toolchain(python)
    with pytest.raises(GenerationError, match=r"'/no/python' can't be run \(No such file.*\. Set "):
        find_toolchain("/no/python")
    with pytest.raises(
        GenerationError, match=r"echo is not a Python interpreter: it printed '-c .*\. Set TRITON_"
    ):
        find_toolchain("echo")


@pytest.mark.usefixtures("_triton")
def test_an_isolated_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build like pip's: a module that its variable adds to the path hides installed packages."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.path = [path for path in sys.path if 'site-packages' not in path]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert find_toolchain(sys.executable).python == (sys.executable, "-I")


def test_a_triton_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("__version__ = '2.1.0'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(GenerationError, match=r"is Triton 2\.1\.0; expected 3\.\d or later\. Run "):
        find_toolchain(sys.executable)


@pytest.mark.parametrize("targets", ["", "sm_80", "80;90", "75"])
def test_invalid_targets(targets: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["triton", "--output-dir", "out", "--targets", targets])
    assert re.search(f"argument --targets: got '?{targets}'?; expected ", capsys.readouterr().err)


def test_an_unknown_operator_to_leave_out(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["triton", "--output-dir", "out", "--without"]
    assert cli.main([*command, "rms_nrm,nosuch,mul,gemm"]) == 2  # only src/base has mul
    known = (
        "expected some of add, add_rms_norm, causal_softmax, flash_attn_varlen_func, "
        "flash_attn_with_kvcache, fused_add_rms_norm, gelu_and_mul, gelu_tanh_and_mul, gemm, "
        "reshape_and_cache, reshape_and_cache_flash, rms_norm, rotary_embedding, "
        "scaled_dot_product_attention, scaled_softmax, silu_and_mul, swiglu, "
        "top_k_top_p_sampling_from_logits, topk_softmax"
    )
    assert capsys.readouterr().err.splitlines() == [
        f"codegen: error: --without: got 'nosuch', which is not an operator; {known}",
        f"--without: got 'rms_nrm', which is not an operator; {known}; did you mean 'rms_norm'?",
    ]
