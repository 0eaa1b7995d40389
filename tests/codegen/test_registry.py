"""The registry of hand-written implementations, read from sources."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.cli import main
from codegen.errors import GenerationError
from codegen.native import METADATA_NAME, SIGNATURES_NAME, Registry, read_bases, read_registry


def registry(
    root: Path, folder: Path, sources: dict[str, str], accelerator: str | None = None
) -> Registry:
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    bases = read_bases(root / "src" / "base")
    return read_registry(map(Path, sources), bases, accelerator, folder)


def places(found: Registry) -> list[tuple[str, str, int]]:
    return sorted(each.place for each in found.implementations)


def test_every_registration_of_the_build_is_found(root: Path, tmp_path: Path) -> None:
    sources = {
        "src/cpu/add.cc": "// INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 3);\n"
        "INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 0);\n",
        "src/cpu/two.cc": "INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 1);\n"
        "INFINI_OPS_REGISTER(\n    RmsNorm, Device::Type::kCpu, 0);\n",
        "src/cuda/add.cu": "INFINI_OPS_REGISTER(Add, cuda::kDevice, 0);",
        "src/triton/ops/add/add.cc": "INFINI_OPS_REGISTER(Add, Device::Type::kNvidia, 9);",
        "src/core/types.cc": "int Nothing();",
    }
    found = registry(root, tmp_path, sources, "kNvidia")
    cpu = [("add", "cpu", 0), ("add", "cpu", 1)]
    assert places(found) == [
        *cpu,
        ("add", "nvidia", 0),
        ("add", "nvidia", 9),
        ("rms_norm", "cpu", 0),
    ]


def test_what_is_for_a_device_that_the_build_lacks(root: Path, tmp_path: Path) -> None:
    """The library leaves it out too."""
    sources = {"src/a.cc": "INFINI_OPS_REGISTER(Add, Device::Type::kMoore, 0);"}
    assert places(registry(root, tmp_path, sources, "kNvidia")) == []
    assert places(registry(root, tmp_path, sources, "kMoore")) == [("add", "moore", 0)]


def test_the_metadata(root: Path, tmp_path: Path) -> None:
    sources = {
        "src/triton/ops/cat/cat.cc": "INFINI_OPS_REGISTER(Cat, Device::Type::kNvidia, 9)",
        "src/cpu/cat.cc": "INFINI_OPS_REGISTER(Cat, Device::Type::kCpu, 0)",
    }
    metadata = json.loads(registry(root, tmp_path, sources, "kNvidia").render())
    (operator,) = metadata.pop("ops")
    assert metadata == {"schema_version": 1, "not_selected": []}
    assert (operator["name"], operator["overload_name"]) == ("cat", "out")
    fields = [tuple(parameter.values()) for parameter in operator["params"]]
    assert fields == [
        ("tensors", "Tensor[]", True, False, None),
        ("dim", "int", False, False, "0"),
        ("out", "Tensor", True, True, None),
    ]
    assert operator["implementations"] == [
        {"device": "cpu", "slot": 0, "source": "src/cpu/cat.cc"},
        {"device": "nvidia", "slot": 9, "source": "src/triton/ops/cat/cat.cc"},
    ]


def test_the_signatures(root: Path, tmp_path: Path) -> None:
    sources = {"src/cpu/norm.cc": "INFINI_OPS_REGISTER(RmsNorm, Device::Type::kCpu, 0)"}
    text = registry(root, tmp_path, sources).render_signatures()
    signature = "Tensor input, Tensor weight, float eps=1e-06, Tensor out"
    assert f'    {{"rms_norm", "out", "{signature}"}},\n' in text


def test_a_build_without_hand_written_operators_has_no_signatures(
    root: Path, tmp_path: Path
) -> None:
    text = registry(root, tmp_path, {}).render_signatures()
    assert "const Span<NativeSignature> kNativeSignatures{};" in text


def test_two_implementations_of_one_place(root: Path, tmp_path: Path) -> None:
    sources = {
        "src/cuda/add.cu": "INFINI_OPS_REGISTER(Add, cuda::kDevice, 0);",
        "src/nvidia/add.cc": "\n\nINFINI_OPS_REGISTER(Add, Device::Type::kNvidia, 0);",
    }
    expected = (
        "src/nvidia/add.cc:3: add already has an implementation for nvidia at slot 0, in "
        "src/cuda/add.cu:1; give one of them another slot (1 is free), or remove it from the build"
    )
    with pytest.raises(GenerationError, match=f"^{re.escape(expected)}$"):
        registry(root, tmp_path, sources, "kNvidia")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "src/cpu/a.cc",
            "Add, Device::Type::kCpu, 8",
            "slot 8 is not allowed in this source: native code",
        ),
        ("src/cpu/a.cc", "Add, Device::Type::kCpu, 9", "native code uses 0 to 7, the generated Py"),
        ("src/cpu/a.cc", "Add, Device::Type::kCpu, 10", "slot 10 is not allowed in this source"),
        (
            "src/triton/ops/a.cc",
            "Add, Device::Type::kCpu, 0",
            "slot 0 is not allowed in this source",
        ),
        (
            "src/cpu/a.cc",
            "Addd, Device::Type::kCpu, 0",
            "Addd has no base; declare it in src/base/<op>.h",
        ),
        (
            "src/cpu/a.cc",
            "Addd, Device::Type::kCpu, 0",
            "declare it in src/base/<op>.h; did you mean 'Add'?",
        ),
        ("src/cpu/a.cc", "Add, Device::Type::kCPU, 0", "unknown device 'Device::Type::kCPU'; exp"),
        (
            "src/cuda/a.cu",
            "Add, cuda::kDevice, 0",
            "cuda::kDevice in a build without an accelerator; remove",
        ),
        (
            "src/cpu/a.cc",
            "Add, Device::Type::kCpu, kSlot",
            "can't read 'INFINI_OPS_REGISTER(Add, D",
        ),
        ("src/cpu/a.cc", "Add, Device::Type::kCpu", "expected INFINI_OPS_REGISTER(<Op>, Device::"),
    ],
)
def test_a_registration_that_can_not_be(
    root: Path, tmp_path: Path, name: str, arguments: str, message: str
) -> None:
    text = f"// the first line\nINFINI_OPS_REGISTER({arguments});\n"
    pattern = f"^{re.escape(name)}:2: .*{re.escape(message)}"
    with pytest.raises(GenerationError, match=pattern):
        registry(root, tmp_path, {name: text})


def test_all_findings_are_reported_at_once(root: Path, tmp_path: Path) -> None:
    sources = {f"src/cpu/{n}.cc": f"INFINI_OPS_REGISTER(Add, kCpu, {n});" for n in (8, 9)}
    with pytest.raises(GenerationError, match=r"(?s)8\.cc:1: unknown.*8\.cc:1: slot 8.*9\.cc:1: "):
        registry(root, tmp_path, sources)


def test_the_command_writes_what_changed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["registry", "--output-dir", str(tmp_path), str(root / "src" / "cpu" / "add.cc")]
    assert main([*command, "--dry-run"]) == 0
    path, signatures = tmp_path / METADATA_NAME, tmp_path / SIGNATURES_NAME
    line = "registry: 1 operator, 1 implementation\n"
    assert capsys.readouterr().out == f"would write {path}\nwould write {signatures}\n{line}"
    assert not path.exists()
    assert main(command) == 0
    assert (
        json.loads(path.read_text())["ops"][0]["implementations"][0]["source"] == "src/cpu/add.cc"
    )
    before = path.stat().st_mtime_ns
    assert main(command) == 0
    assert path.stat().st_mtime_ns == before
    assert capsys.readouterr().out == 2 * line


def test_a_source_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "gone.cc"
    assert main(["registry", "--output-dir", str(tmp_path), str(source)]) == 2
    assert capsys.readouterr().err == f"codegen: error: {source}: No such file or directory\n"


def test_the_standard_library_suffices(root: Path, tmp_path: Path) -> None:
    """A build without torch may have neither Jinja2 nor PyYAML; -S leaves them out."""
    command = ["-S", "-m", "codegen", "registry", "--output-dir", str(tmp_path), "src/cpu/add.cc"]
    subprocess.run([sys.executable, *command], cwd=root, check=True)
    assert (tmp_path / METADATA_NAME).exists()
