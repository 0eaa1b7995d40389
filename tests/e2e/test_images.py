"""The image recipe on bases as vendors have them: a torch of their own, their users, dnf.

The tests build small bases from the offline one: a package is its metadata, an SDK is a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from docker.client import DockerClient
from docker.errors import ImageNotFound
from docker.models.images import Image

from ci.engines.archives import pack
from ci.errors import InfrastructureError
from ci.model.execution import ImageFacts
from ci.model.plan import RunPlan
from ci.plan.network import read_pip_settings
from ci.plan.project import load_project, plan_run
from tests.e2e.benches import Recorder, engine_or_skip
from tests.e2e.plans import OFFLINE_BASE

pytestmark = pytest.mark.docker

PACKAGES = "/usr/lib/python3/dist-packages"
VENDOR = f"""\
FROM {OFFLINE_BASE}
RUN useradd --uid 1000 --create-home ubuntu && mkdir --parents /opt/maca/bin \\
    && touch /usr/bin/ccache && chmod +x /usr/bin/ccache
ENV PIP_CONSTRAINT=/etc/constraints-of-the-vendor.txt
COPY torch {PACKAGES}/torch
COPY torch-dist {PACKAGES}/torch-2.4.0+vendor.dist-info
COPY numpy-dist {PACKAGES}/numpy-1.26.4.dist-info
USER ubuntu
"""
FAKE_PACKAGES = {
    "torch/__init__.py": b"__version__ = '2.4.0+vendor'\n",
    "torch-dist/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0+vendor\n",
    "torch-dist/RECORD": b"",
    "numpy-dist/METADATA": b"Metadata-Version: 2.1\nName: numpy\nVersion: 1.26.4\n",
    "numpy-dist/RECORD": b"",
}
# A real dnf, whose only repository has a compiler and git, and no ccache.
DNF = f"""\
FROM {OFFLINE_BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends createrepo-c dnf rpm
COPY tool.spec /
RUN rm --force /usr/bin/apt-get /usr/bin/g++ /usr/bin/git /usr/bin/ccache \\
    && rpmbuild -bb --quiet --define 'tool gcc-c++' --define 'program g++' /tool.spec \\
    && rpmbuild -bb --quiet --define 'tool git' --define 'program git' /tool.spec \\
    && rpmbuild -bb --quiet --define 'tool pager-rpm' --define 'program pager' /tool.spec \\
    && createrepo_c --quiet /root/rpmbuild/RPMS && mkdir --parents /etc/yum.repos.d \\
    && printf '[local]\\nname=local\\nbaseurl=file:///root/rpmbuild/RPMS\\ngpgcheck=0\\n' \\
        >/etc/yum.repos.d/local.repo
"""
TOOL = b"""\
Name: %{tool}
Version: 1
Release: 1
Summary: Says its name
License: MIT
BuildArch: noarch
AutoReqProv: no
%description
%install
mkdir -p %{buildroot}/usr/bin
printf '#!/bin/sh\\necho %{tool} of the repository\\n' >%{buildroot}/usr/bin/%{program}
chmod +x %{buildroot}/usr/bin/%{program}
%files
/usr/bin/%{program}
"""


class Site:
    """A project of one requirement, on base images of its own; its images are gone at the end."""

    def __init__(self, folder: Path, client: DockerClient) -> None:
        self.folder = folder
        self.client = client
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        self.made: list[str] = []

    def base(self, kind: str, dockerfile: str, context: Mapping[str, bytes] | None = None) -> str:
        """Make a base image, perhaps in place of an earlier one."""
        reference = f"infini-ci-bases/{self.name}:{kind}"
        own = f"{dockerfile}LABEL test={self.name}\n"  # or an earlier test's layers would be taken
        archive = pack({**(context or {}), "Dockerfile": own.encode()})
        self.client.images.build(
            fileobj=archive, custom_context=True, tag=reference, forcerm=True, network_mode="host"
        )
        self.made.append(reference)
        return reference

    def plan(
        self, platform: str, base: str, requirements: str, packages: str = "[]", **environ: str
    ) -> RunPlan:
        (self.folder / "needs.txt").write_text(requirements)
        settings = f"{{requirements: needs.txt, base_image: '{base}'}}"
        config = self.folder / "ci.yaml"
        config.write_text(
            f"project: tiny\nplatforms:\n  {platform}: {settings}\nsystem_packages: {packages}\n"
        )
        project = load_project(config, {**os.environ, **environ}, read_pip_settings(os.environ))
        results = self.folder / "results"
        [plan] = plan_run(
            project, [platform], run_id=self.name, source=self.folder, results=results
        )
        self.made.append(plan.needed_image.tag)
        return plan

    def prepare(self, plan: RunPlan) -> ImageFacts:
        with closing(engine_or_skip("docker")) as engine:
            return engine.prepare(plan, Recorder())

    def run(self, plan: RunPlan, program: str) -> str:
        """Run a shell program as the engine runs its agent."""
        output = self.client.containers.run(
            plan.needed_image.tag,
            entrypoint=[*plan.needed_image.entry, "sh", "-c", program],
            user=plan.container.user,
            cap_drop=["ALL"],
            remove=True,
        )
        return bytes(output).decode()


@pytest.fixture(scope="module")
def client() -> Iterator[DockerClient]:
    engine_or_skip("docker").close()
    with closing(DockerClient.from_env()) as client:
        yield client


@pytest.fixture(scope="module")
def site(client: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"), client)
    yield site
    for name in reversed(site.made):
        with suppress(ImageNotFound):
            client.images.remove(name, force=True)


@pytest.fixture(scope="module")
def vendor_base(site: Site) -> str:
    return site.base("vendor", VENDOR, FAKE_PACKAGES)


# As old a pip as that of Ubuntu 22.04, on which many vendors build.
REQUIREMENTS = "iniconfig\ntorch>=2.4\nnumpy\npip==22.0.2\n"
PYPI_SIX = (
    "https://files.pythonhosted.org/packages/b7/ce/149a00dd41f10bc29e5921b496af8b574d8413afcd5e30d"
    "fa0ed46c2cc5e/six-1.17.0-py2.py3-none-any.whl"
)
# A project whose build prints which packages it sees.
BUILD = """\
mkdir /tmp/project && cd /tmp/project
cat > pyproject.toml << END
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
END
cat > backend.py << END
from importlib import util
names = ("torch", "numpy", "iniconfig")
raise SystemExit(f"seen: {[name for name in names if util.find_spec(name)]}")
END
"""


@pytest.fixture(scope="module")
def both(site: Site, vendor_base: str) -> list[tuple[RunPlan, ImageFacts]]:
    """Two platforms on one base, built at the same time."""
    plans = [site.plan(name, vendor_base, REQUIREMENTS) for name in ("metax", "iluvatar")]
    with ThreadPoolExecutor() as pool:
        return list(zip(plans, pool.map(site.prepare, plans), strict=True))


def test_two_platforms_at_once_make_their_layers_once(
    client: DockerClient, both: list[tuple[RunPlan, ImageFacts]]
) -> None:
    metax, iluvatar = (layers(client.images.get(plan.needed_image.tag)) for plan, _ in both)
    assert metax[:-1] == iluvatar[:-1]
    assert metax[-1] != iluvatar[-1]  # what only the platform has


def layers(image: Image) -> list[str]:
    found: list[str] = image.attrs["RootFS"]["Layers"]
    return found


def test_the_image_knows_the_files_that_pip_installed(
    site: Site, both: list[tuple[RunPlan, ImageFacts]]
) -> None:
    """For the lock of a run: the vendor's own packages have none."""
    program = """
import json, pathlib
reports = pathlib.Path("/opt/venv").glob("pip-report*.json")
print(json.dumps([it for report in reports for it in json.loads(report.read_text())["install"]]))
"""
    installed = json.loads(site.run(both[0][0], f"python -c '{program}'"))
    found = {it["metadata"]["name"]: it["download_info"] for it in installed}
    assert {"iniconfig", "pip"} <= found.keys()
    assert found.keys().isdisjoint({"torch", "numpy"})
    assert all(len(it["archive_info"]["hashes"]["sha256"]) == 64 for it in found.values())


def test_an_environment_of_a_lock(site: Site) -> None:
    """Only pip's name of the file makes it a lock."""
    files = site.folder / "files"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "six==1.17.0"]
    subprocess.run([*pip, "--dest", str(files)], check=True)
    [wheel] = files.iterdir()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    address = PYPI_SIX
    lock = f"""\
lock-version = "1.0"
created-by = "test"
[[packages]]
name = "six"
version = "1.17.0"
[[packages.wheels]]
url = "{address}"
hashes = {{ sha256 = "{digest}" }}
"""
    plan = site.plan("metax", site.base("locked", VENDOR, FAKE_PACKAGES), lock)
    site.prepare(plan)
    assert site.run(plan, "python -c 'import six; print(six.__version__)'") == "1.17.0\n"


def test_a_torch_of_the_vendors_is_kept(site: Site, both: list[tuple[RunPlan, ImageFacts]]) -> None:
    program = "python -c 'import torch, iniconfig; print(torch.__version__, torch.__file__)'"
    constraints = site.run(both[0][0], f"{program}; cat $PIP_CONSTRAINT")
    torch, head, *pins = constraints.splitlines()
    assert torch == f"2.4.0+vendor {PACKAGES}/torch/__init__.py"
    assert head.startswith("# the packages of /usr/bin/python3, Python 3.")
    assert pins == ["numpy<2", "torch==2.4.0+vendor"]


def test_an_isolated_build_sees_nothing_of_the_image(
    site: Site, both: list[tuple[RunPlan, ImageFacts]]
) -> None:
    install = "python -m pip install --verbose"
    builds = f"{install} . ; {install} --no-build-isolation . ; python -m pip --version"
    printed = site.run(both[0][0], f"{BUILD}({builds}) 2>&1; true")
    seen = [line.partition("seen: ")[2] for line in printed.splitlines() if "seen: [" in line]
    assert seen == ["[]", "['torch', 'iniconfig']"]
    assert "\npip 22.0.2 from /opt/packages/" in printed


def test_any_user_with_uid_1000_runs_everything(
    site: Site, both: list[tuple[RunPlan, ImageFacts]]
) -> None:
    program = "id -un; touch /cache/a /opt/venv/a /workspace/a ~/a; echo $MACA_PATH $PATH"
    user, paths = site.run(both[0][0], program).splitlines()
    assert user == "ubuntu"
    assert paths.startswith("/opt/maca /opt/venv/bin:")
    assert paths.endswith(":/opt/maca/bin")


SECRET = uuid.uuid4().hex
# No server listens there; pip treats this as a page without links.
LINKS = f"http://me:{SECRET}@127.0.0.1:9/"


@pytest.fixture(scope="module")
def changed(
    site: Site, vendor_base: str, both: list[tuple[RunPlan, ImageFacts]]
) -> tuple[RunPlan, ImageFacts]:
    """One of the two again, with another requirement and an index that needs a password."""
    assert all(facts.built for _, facts in both)
    plan = site.plan("metax", vendor_base, "iniconfig\n", PIP_FIND_LINKS=LINKS)
    return plan, site.prepare(plan)


def test_requirements_that_would_replace_it_stop_the_build(site: Site, vendor_base: str) -> None:
    plan = site.plan("metax", vendor_base, "torch>=2.5\n", PIP_FIND_LINKS=LINKS)
    wanted = r"pip cannot install the requirements together with the base image's own packages"
    with pytest.raises(InfrastructureError, match=wanted) as error:
        site.prepare(plan)
    assert "torch==2.4.0+vendor\n" in str(error.value)
    assert images_with_the_secret(site.client) == []


@pytest.mark.complete  # the one before has a build that fails
@pytest.mark.usefixtures("changed")
def test_no_image_contains_a_secret(site: Site) -> None:
    assert images_with_the_secret(site.client) == []


def images_with_the_secret(client: DockerClient) -> list[str]:
    found = []
    for name in client.api.images(quiet=True, all=True):
        with suppress(ImageNotFound):  # other tests build and remove images beside this one
            about = f"{client.api.history(name)} {client.api.inspect_image(name)}"
            found += [name] * (SECRET in about)
    return found


@pytest.mark.complete  # tests/e2e/test_docker_engine.py builds one once
def test_an_image_is_built_for_a_reason(
    site: Site, both: list[tuple[RunPlan, ImageFacts]], changed: tuple[RunPlan, ImageFacts]
) -> None:
    assert site.prepare(both[0][0]).reason == "cached"
    plan, facts = changed
    argument, file = facts.reason.rpartition(" differs in ")[2].split(", ")
    assert argument.startswith("argument PIP_FIND_LINKS")  # new, or other than this site's
    assert file == "requirements-metax.txt"
    base = site.base("vendor", f"FROM {plan.needed_image.base_image}\nENV PULLED=again\n")
    again = site.prepare(plan)
    assert again.reason == f"base image {base} is now {site.client.images.get(base).id}"
    assert again.digest != facts.digest


@pytest.mark.complete  # the next one has the same with apt
def test_a_base_with_dnf(site: Site) -> None:
    base = site.base("dnf", DNF, {"tool.spec": TOOL})
    packages = "{apt: [pager-deb], dnf: [pager-rpm]}"
    plan = site.plan("ascend", base, "iniconfig\n", packages)
    site.prepare(plan)
    assert site.run(plan, "g++; git; pager").splitlines() == [
        "gcc-c++ of the repository",
        "git of the repository",
        "pager-rpm of the repository",
    ]
    log = (plan.results / "image.log").read_text()
    assert "have no ccache: builds continue without a compiler cache" in log
    refused(
        site, site.plan("ascend", base, "iniconfig\n", "[pager-rpm, pagerr, les]"), "pagerr les"
    )


def refused(site: Site, plan: RunPlan, names: str) -> None:
    """The first line names the packages: the table's row has no more."""
    wanted = rf"\A.* cannot be built: system_packages: Debian .* has no package: {names}\n"
    with pytest.raises(InfrastructureError, match=wanted):
        site.prepare(plan)


def test_system_packages_by_apt(site: Site) -> None:
    plan = site.plan("moore", OFFLINE_BASE, "iniconfig\n", "[less]")
    reason = site.prepare(plan).reason
    # The engine may have images of other commits, from which more differs.
    assert "no image of platform moore yet" in reason or "system-packages (it has none)" in reason
    assert site.run(plan, "less --version").startswith("less ")
    refused(site, site.plan("moore", OFFLINE_BASE, "iniconfig\n", "[less, lesss]"), "lesss")


def test_a_base_image_that_no_registry_has(site: Site) -> None:
    plan = site.plan("moore", "registry.invalid/musa", "iniconfig\n")
    wanted = r"base image registry\.invalid/musa is not on the engine and cannot be pulled"
    with pytest.raises(InfrastructureError, match=wanted) as error:
        site.prepare(plan)
    assert "INFINI_CI_BASE_IMAGE_MOORE or as platforms.moore" in str(error.value.remedy)
