"""What launchers pass is what the machine code takes, by NVIDIA's own tool for reading it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.triton.triton_workplace import ROOT, TARGETS, Generated, cubin_in

POINTER_SIZE = 8
SIZES = {"void*": POINTER_SIZE, "int64_t": 8, "double": 8, "int32_t": 4, "float": 4, "int16_t": 2}
SIZES |= {"int8_t": 1, "bool": 1}


@dataclass(frozen=True, kw_only=True)
class Code:
    """Return the output of cuobjdump for a cubin."""

    entries: list[str]
    architecture: str
    threads: int
    static_shared: int
    parameter_sizes: list[int]


@pytest.fixture(scope="session")
def cuobjdump(_triton: None) -> Path:
    """Comes with Triton."""
    spec = importlib.util.find_spec("triton")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def read(cuobjdump: Path, path: Path) -> Code:
    finished = subprocess.run(
        [cuobjdump, "-elf", "-res-usage", path], capture_output=True, text=True, check=True
    )
    text = finished.stdout
    parameters = re.findall(r"Ordinal : (0x\w+)\s+Offset  : 0x\w+\s+Size    : (0x\w+)", text)
    (threads,) = re.findall(r"EIATTR_REQNTID\n.*\n\s+Value:\s+(0x\w+) 0x1 0x1", text)
    (shared,) = re.findall(r"REG:\d+ STACK:\d+ SHARED:(\d+)", text)
    (architecture,) = re.findall(r"^64-?bit elf: .*\bsm=(\w+)", text, re.IGNORECASE | re.MULTILINE)
    return Code(
        entries=re.findall(r"^ Function (\w+):", text, re.MULTILINE),
        architecture=architecture,
        threads=int(threads, 16),
        static_shared=int(shared),
        parameter_sizes=[
            int(size, 16)
            for _, size in sorted((int(place, 16), size) for place, size in parameters)
        ],
    )


def passed_sizes(source: str, name: str) -> list[int]:
    """The sizes of the arguments that a launcher points to, in order."""
    match = re.search(rf" launch_{name}\(.*?\n}}\n", source, re.DOTALL)
    assert match
    types = {variable: type for type, variable in re.findall(r"  (\S+) (argument\d+) =", match[0])}
    (passed,) = re.findall(r"void\* arguments\[\] = {(.*)};", match[0])
    variables = re.findall(r"&(\w+)", passed)
    return [SIZES[types.get(variable, "void*")] for variable in variables]


def variant_row(source: str, row: dict[str, Any]) -> dict[str, str]:
    """The initialiser of the variant's row in the table that is launched from."""
    name = rf'"{row["variant"]}",\s+\.cubin = cubin_{row["variant"]}_{row["target"]}'
    match = re.search(rf"{{\.name = {name},.*?}},\n", source, re.DOTALL)
    assert match
    return dict(re.findall(r"\.(\w+) = \"?(\w+)", match[0]))


def test_every_operator_has_every_target(generated: Generated) -> None:
    operators = {path.parent.name for path in (ROOT / "src" / "triton" / "ops").glob("*/build.py")}
    assert {(row["operator"], row["target"]) for row in generated.rows} == {
        (operator, target) for operator in operators for target in TARGETS
    }


def test_launchers_match_the_machine_code(
    generated: Generated, cuobjdump: Path, tmp_path: Path
) -> None:
    sources = {name: generated.source(name) for name in {row["operator"] for row in generated.rows}}
    for row in generated.rows:
        source = sources[row["operator"]]
        cubin = tmp_path / "kernel.cubin"
        cubin.write_bytes(cubin_in(source, row["variant"], row["target"]))
        code = read(cuobjdump, cubin)
        launched = variant_row(source, row)
        assert [launched["entry"]] == code.entries, row
        assert int(launched["threads"]) == code.threads, row
        assert passed_sizes(source, f"{row['variant']}_{row['target']}") == code.parameter_sizes, (
            row
        )
        # All of Triton's is dynamic, which the launch says. From 9.0 on the system has 1 KiB of its
        # own in each block, which is not counted in what a block may have.
        reserved = 1024 if row["target"] >= 90 and row["shared_bytes"] else 0
        assert code.static_shared == reserved, row
        # From 9.0 on, code is for one version only; the driver's choice of a target considers this.
        assert code.architecture == f"{row['target']}{'a' if row['target'] >= 90 else ''}", row


def test_shared_memory_fits_the_targets(generated: Generated) -> None:
    """At most what a block may have on A100 (8.0) and H100 (9.0): 163 and 227 KiB."""
    limits = {80: 163 * 1024, 90: 227 * 1024}
    for row in generated.rows:
        assert row["shared_bytes"] <= limits[row["target"]], row
