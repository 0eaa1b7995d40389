"""Writes the SBOM of a wheel (PEP 770): CycloneDX, the same for the same build.

``src/cmake/Sbom.cmake`` runs it at installation: what is linked statically is known then.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import Distribution, distributions
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

PROJECT = "infini-ops"
LINKED = ("torch/lib/libc10.so", "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_python.so")
# The SONAME of what a compiler can link statically instead.
RUNTIME = {"libstdc++": b"libstdc++.so.6\0", "libgcc": b"libgcc_s.so.1\0"}


def component(name: str, version: str | None, kind: str = "generic", **more: object) -> Component:
    purl = PackageURL(kind, None, name, version)
    type_ = more.pop("type", ComponentType.LIBRARY)
    return Component(name=name, version=version, purl=purl, bom_ref=str(purl), type=type_, **more)


def describe_torch(root: Path) -> Component:
    """The torch of the build, with the libraries that are linked and their hashes in RECORD."""
    text = (root / "torch" / "version.py").read_text(encoding="utf-8")
    [version] = re.findall(r"^__version__ = '(.*)'", text, re.M)
    found = next(iter(distributions(name="torch", path=[str(root)])), None)
    files = [*_recorded(found)] if found else []
    return component("torch", version, "pypi", components=files)


def _recorded(torch: Distribution) -> Iterator[Component]:
    for file in torch.files or ():
        if file.as_posix() in LINKED and file.hash and file.hash.mode == "sha256":
            padded = file.hash.value + "=" * (-len(file.hash.value) % 4)
            digest = base64.urlsafe_b64decode(padded).hex()
            yield Component(
                name=file.as_posix(),
                type=ComponentType.FILE,
                bom_ref=file.as_posix(),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
            )


def static_parts(libraries: list[Path], compiler: str, version: str | None) -> Iterator[Component]:
    """The parts of the compiler that a library contains, as it names no shared one.

    Only GCC has the version of its own libraries.
    """
    contents = [path.read_bytes() for path in libraries]
    for name, soname in RUNTIME.items():
        if not all(soname in content for content in contents):
            yield component(name, version if compiler == "GNU" else None)


def split(text: str) -> tuple[str, str | None]:
    name, _, version = text.partition("=")
    return name, version or None


def describe(options: argparse.Namespace) -> Bom:
    compiler, compiler_version = split(options.compiler)
    parts = [component(*split(it)) for it in options.part]
    parts += static_parts(options.library, compiler, compiler_version)
    if options.torch_root:
        parts.append(describe_torch(options.torch_root))
    tools = [component(*split(it), type=ComponentType.APPLICATION) for it in options.tool]
    tools.append(component(compiler, compiler_version, type=ComponentType.APPLICATION))
    bom = Bom(components=parts)
    bom.metadata.component = component(PROJECT, options.version, "pypi")
    bom.metadata.tools = ToolRepository(components=tools)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    bom.metadata.timestamp = datetime.fromtimestamp(int(epoch), timezone.utc) if epoch else None
    bom.register_dependency(bom.metadata.component, parts)
    # The serial number is that of the content.
    bom.serial_number = UUID(int=0)
    bom.serial_number = uuid5(NAMESPACE_URL, JsonV1Dot6(bom).output_as_string())
    return bom


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("library", type=Path, nargs="+", help="a compiled file of the wheel")
    parser.add_argument("--version", required=True)
    parser.add_argument("--compiler", required=True, metavar="NAME=VERSION")
    parser.add_argument("--tool", action="append", default=[], metavar="NAME=VERSION")
    parser.add_argument("--part", action="append", default=[], metavar="NAME=VERSION")
    parser.add_argument("--torch-root", type=Path)
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    text = JsonV1Dot6(describe(options)).output_as_string(indent=2)
    options.output.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
