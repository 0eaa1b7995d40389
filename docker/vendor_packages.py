"""Protect the packages that a vendor has installed, in an image or on a machine, from pip.

python3 vendor_packages.py find                prints the first known Python that has torch
python3 vendor_packages.py has-torch           prints this Python if it has torch, else exits 1
python3 vendor_packages.py constraints         prints pip constraints that keep the packages
python3 vendor_packages.py link ENVIRONMENT    lets a virtual environment see them
python3 vendor_packages.py check CONSTRAINTS   exits 1 if one was replaced or shadowed

The recipe of images and the host engine both run it, with the Python that has the packages.
"""

# Python 3.6 must be able to run `find` and `has-torch`: some base images have it beside the
# vendor's own. So there is no `from __future__` here, and importlib.metadata, of 3.8, comes late.
import os
import platform
import re
import site
import subprocess
import sys
from importlib import util
from pathlib import Path

# The vendors' interpreters that may not be on PATH: conda's (MetaX), and one in an environment of
# its own (Cambricon).
OFF_PATH = ("opt/conda/bin/python3", "torch/venv3/*/bin/python3")
# torch, torchvision, torch_npu, torch-mlu; triton, triton-ascend
FAMILY = re.compile(r"(torch|triton)(\W|_|[a-z])*$")


def find() -> None:
    """Print nothing if no Python has torch.

    Every folder of PATH counts: an activated environment without torch may come first. This
    Python comes last.
    """
    on_path = [Path(folder, "python3") for folder in os.get_exec_path()]
    known = [path for path in on_path if path.is_absolute()]
    known += [path for pattern in OFF_PATH for path in sorted(Path("/").glob(pattern))]
    for python in dict.fromkeys([*known, Path(sys.executable)]):
        if os.access(python, os.X_OK):
            command = [str(python), __file__, "has-torch"]
            if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return


def has_torch() -> None:
    """Exit with 1 if there is none.

    A folder that an uninstallation left is no torch, though Python finds a namespace package.
    """
    spec = util.find_spec("torch")
    if spec is None or spec.origin in (None, "namespace"):  # the latter before Python 3.7
        sys.exit(1)
    print(sys.executable)


def constraints() -> None:
    """Print the constraints; if a package is installed twice, the imported one comes first.

    The comment at their head names this Python.
    """
    from importlib import metadata

    print(f"# the packages of {sys.executable}, Python {platform.python_version()}")
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
    """Link the folders of this Python's packages, one a line of a path configuration file.

    Environments do not nest, and pip before 22.3 leaves `--system-site-packages` on the path of
    isolated builds. Every pip removes the folders that a line names.
    """
    known = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders = [folder for folder in (*known, *site.getsitepackages()) if Path(folder).is_dir()]
    before = len(sys.path)
    new: set[str] = set()  # every folder is appended, and with it those of its files .pth
    for folder in folders:
        site.addsitedir(folder, new)
    lines = [f"{folder}\n" for folder in sys.path[before:]]
    # What else files .pth do, such as those of editable packages.
    lines += [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
    (own,) = Path(environment).glob("lib/python*/site-packages")
    (own / "vendor.pth").write_text("".join(lines))


def check(path: str) -> None:
    pins = [line for line in Path(path).read_text().splitlines() if not line.startswith("#")]
    wrong = [pin for pin in pins if "==" in pin and not is_kept(pin)]
    for pin in wrong:
        print(f"vendor_packages.py: the vendor's {pin} was replaced or shadowed", file=sys.stderr)
    sys.exit(bool(wrong))


def is_kept(pin: str) -> bool:
    from importlib import metadata

    name, version = pin.split("==")
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    own = Path(sys.prefix) in Path(str(package.locate_file(""))).parents
    return package.version == version and not own


if __name__ == "__main__":
    COMMANDS = {
        "find": find,
        "has-torch": has_torch,
        "constraints": constraints,
        "link": link,
        "check": check,
    }
    COMMANDS[sys.argv[1]](*sys.argv[2:])
