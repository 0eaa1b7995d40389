"""Protect the packages that the vendor of a base image has installed from pip.

python3 vendor_packages.py has-torch           exits 0 if this Python finds a torch
python3 vendor_packages.py constraints         prints pip constraints that keep the packages
python3 vendor_packages.py link ENVIRONMENT    lets a virtual environment see them
python3 vendor_packages.py check CONSTRAINTS   exits 1 if one was replaced or shadowed
"""

from __future__ import annotations

import re
import site
import sys
from importlib import metadata, util
from pathlib import Path

# torch, torchvision, torch_npu, torch-mlu; triton, triton-ascend
FAMILY = re.compile(r"(torch|triton)(\W|_|[a-z])*$")


def has_torch() -> None:
    sys.exit(util.find_spec("torch") is None)


def constraints() -> None:
    """Print the constraints; if a package is installed twice, the imported one comes first."""
    versions: dict[str, str] = {}
    for package in metadata.distributions():
        versions.setdefault(package.metadata["Name"].lower(), package.version)
    for name, version in sorted(versions.items()):
        if is_vendor_package(name, version):
            print(f"{name}=={version}")
        elif name == "numpy":  # torch is compiled for one major version of it
            print(f"numpy<{int(version.split('.')[0]) + 1}")


def is_vendor_package(name: str, version: str) -> bool:
    """Tell whether the vendor built it: its local version (2.4.0+metax3.2) is in no index."""
    return "+" in version or FAMILY.match(name) is not None


def link(environment: str) -> None:
    """Link the packages if the vendor's Python is a virtual environment: these do not nest."""
    if sys.prefix == sys.base_prefix:
        return
    (folder,) = Path(environment).glob("lib/python*/site-packages")
    lines = [f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages()]
    (folder / "vendor.pth").write_text("".join(lines))


def check(path: str) -> None:
    wrong = [pin for pin in Path(path).read_text().split() if "==" in pin and not is_kept(pin)]
    for pin in wrong:
        print(
            f"vendor_packages.py: the base image's {pin} was replaced or shadowed", file=sys.stderr
        )
    sys.exit(bool(wrong))


def is_kept(pin: str) -> bool:
    name, version = pin.split("==")
    package = metadata.distribution(name)
    own = Path(sys.prefix) in Path(str(package.locate_file(""))).parents
    return package.version == version and not own


if __name__ == "__main__":
    COMMANDS = {
        "has-torch": has_torch,
        "constraints": constraints,
        "link": link,
        "check": check,
    }
    COMMANDS[sys.argv[1]](*sys.argv[2:])
