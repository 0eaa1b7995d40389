"""The recorded outputs of other devices are those that torch computes, see samples/variants.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

OPS = Path(__file__).parents[1] / "ops"
RECORDED = (OPS / "samples" / "variants.jsonl").read_text().splitlines()


def record(folder: Path, *overloads: str) -> list[str]:
    """Returns the lines of the file that torch gives here for some overloads, or for all."""
    output = folder / "variants.jsonl"
    command = (sys.executable, "-W", "ignore", "-m", "samples.variants", f"--output={output}")
    subprocess.run([*command, *overloads], cwd=OPS, check=True, capture_output=True)
    return output.read_text().splitlines()


def public_version(header: str) -> str:
    """Returns the version of torch without that of its build: 2.13.0, not 2.13.0+cpu."""
    version: str = json.loads(header)["torch_version"]
    return version.partition("+")[0]


def lines_of(overload: str) -> list[str]:
    return [line for line in RECORDED[1:] if json.loads(line)["overload"] == overload]


def test_recording_some_again_gives_their_lines(tmp_path: Path) -> None:
    some = ("_unique.out", "abs.out", "native_batch_norm.out", "native_layer_norm.out")
    header, *lines = record(tmp_path, *some)
    assert public_version(header) == public_version(RECORDED[0]), "nox -s samples"
    assert lines == [line for overload in some for line in lines_of(overload)], "nox -s samples"
    assert [len(lines_of(overload)) for overload in some] == [1, 0, 4, 2]


# The fake kernels of few overloads check their outputs and options as the kernels of CUDA do.
REPLAY = """
from samples import aten_overload, load
from samples.adaptation import adapted
from samples.variants import call, fake_tensors


def error(sample):
    try:
        call(overload, sample, overload, "cuda", mode)
    except Exception as error:
        return str(error)


with fake_tensors() as mode:
    for name, dtype in {cases}:
        overload = aten_overload(name)
        for sample in load().samples[name][dtype]:
            if refused := error(sample):
                candidates = adapted(sample, overload, "cuda")
                taken = next(each.change for each in candidates if not error(each.sample))
                print(refused, "|", taken)
"""


def test_the_first_candidate_that_cuda_takes_is_near_the_recorded_call() -> None:
    """The errors are those of torch 2.11 on an NVIDIA H200."""
    cases = [
        ("_native_batch_norm_legit_no_training.out", "bfloat16"),
        ("_native_batch_norm_legit_no_training.out", "float32"),
        ("_stack.out", "float16"),
    ]
    command = (sys.executable, "-W", "ignore", "-c", REPLAY.replace("{cases}", repr(cases)))
    run = subprocess.run(command, cwd=OPS, check=True, capture_output=True, text=True)
    dtype_error = "Expected out tensor to have dtype float, but got c10::BFloat16 instead"
    dimension = "Dimension out of range (expected to be in range of [-1, 0], but got 1)"
    assert run.stdout.splitlines() == [
        *(
            f"{dtype_error} | out1, out2: float32[{channels}] instead of bfloat16[0]"
            for channels in (1, 2, 1)
        ),
        f"{dimension} | dim: the default instead of 1",
    ]


@pytest.mark.complete
def test_recording_all_again_gives_the_same_file(tmp_path: Path) -> None:
    _, *lines = record(tmp_path)
    assert of_any_build(lines) == of_any_build(RECORDED[1:]), "nox -s samples"


def of_any_build(lines: list[str]) -> list[str]:
    """Leaves out what only a torch with CUDA knows. There, the outputs are those of the CPU."""
    return [line for line in lines if "not linked with support for cuda" not in line]
