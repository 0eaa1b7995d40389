"""Real releases of a tiny project: first a go, then a no-go of each rule that a change breaks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ci.errors import ExitCode
from ci.model.decision import Decision, OutcomeKind
from ci.model.release import ReleaseRule
from ci.store.folder import newest_decision
from tests.e2e.places import Place

# A process uses CPU seconds and a benchmark sleeps for so long that a busy machine, whose times
# double, breaks no rule of the usual release.
CONFIG = """\
project: tiny
distributions: dist
platforms:
  cpu: {requirements: requirements.txt}
  nvidia: {requirements: requirements.txt, simulated: true}
stages:
- {name: build, command: python build.py}
- name: install
  command: python -m pip install --no-index --no-deps "{wheel}"
- {name: pytest, kind: pytest, command: python -m pytest -q tests}
- {name: bench, kind: benchmark, command: python bench.py, benchmarks: bench.json}
release:
  required: [cpu]
  build_cost_percent: 200
  benchmark_percent: 200
  removed_symbols: 0
  tags: v*
"""
BUILD = """\
import base64, gzip, hashlib, subprocess, time, zipfile
from pathlib import Path

FUNCTIONS = ["first", "second"]
SDISTS, CPU_SECONDS = ["1.0"], 0.2
while time.process_time() < CPU_SECONDS:
    pass
Path("dist").mkdir()
source = "".join(f"int {name}(void) {{ return 0; }}\\n" for name in FUNCTIONS)
compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", "libtiny.so"]
subprocess.run(compiler, input=source, check=True, text=True)
files = {
    "tiny.py": Path("lib/tiny.py").read_bytes(),
    "libtiny.so": Path("libtiny.so").read_bytes(),
    "tiny-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n",
    "tiny-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\\nTag: py3-none-any\\n",
}
record = ""
with zipfile.ZipFile("dist/tiny-1.0-py3-none-any.whl", "w") as wheel:
    for name, content in files.items():
        wheel.writestr(name, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
        record += f"{name},sha256={digest.decode().rstrip('=')},{len(content)}\\n"
    wheel.writestr("tiny-1.0.dist-info/RECORD", record + "tiny-1.0.dist-info/RECORD,,\\n")
for version in SDISTS:
    Path(f"dist/tiny-{version}.tar.gz").write_bytes(gzip.compress(b"", mtime=0))
"""
BENCH = """\
import json, time
import tiny

SECONDS = 0.1
start = time.perf_counter()
time.sleep(SECONDS)
row = {"name": "answer", "value": time.perf_counter() - start, "unit": "s", "direction": "lower"}
open("bench.json", "w").write(json.dumps({"benchmarks": [row]}))
"""
TESTS = """\
import tiny


def test_answer():
    assert tiny.ANSWER == 42
"""
FILES = {
    "ci.yaml": CONFIG,
    "requirements.txt": "pytest\npytest-reportlog\n",
    "lib/tiny.py": "ANSWER = 42\n",
    "build.py": BUILD,
    "bench.py": BENCH,
    "tests/test_tiny.py": TESTS,
}
# Of the next release, none of them committed.
CHANGES = {
    "ci.yaml": CONFIG.replace("required: [cpu]", "required: [cpu, nvidia]"),
    "build.py": BUILD.replace('["1.0"], 0.2', '["1.0", "1.1"], 2.5').replace(', "second"', ""),
    "bench.py": BENCH.replace("0.1", "1.0"),
    "tests/test_tiny.py": f"""\
import pytest
{TESTS}

def test_that_patches_the_installed_module():
    open(tiny.__file__, "a").write("# patched")


def test_known_defect(record_property):
    record_property("quarantine", "vendor 17")
    pytest.xfail("vendor defect")
""",
}
EVIDENCE = {
    (ReleaseRule.ARTIFACTS, None): "tiny: version 1.0 on cpu",
    (ReleaseRule.CLEAN, "cpu"): "uncommitted changes, expected none",
    (ReleaseRule.QUARANTINES, "cpu"): "1 test quarantined, at most 0",
    (ReleaseRule.INSTALLED, "cpu"): "no installed wheel is recorded",
    (ReleaseRule.REGRESSION, "cpu"): "1 test newly skipped",  # the one in quarantine
    (ReleaseRule.BUILD_COST, "cpu"): "CPU seconds of ",
    (ReleaseRule.BENCHMARKS, "cpu"): "bench: answer +",
    (ReleaseRule.SYMBOLS, "cpu"): "1 exported symbol removed since run ",
    (ReleaseRule.REAL_DEVICE, "nvidia"): "simulated, expected the real device",
}

pytestmark = pytest.mark.complete


@dataclass(frozen=True, kw_only=True)
class Release:
    """A run of the project, and the decision with which it ended."""

    code: int
    shown: str
    decision: Decision

    def rules(self, outcome: OutcomeKind) -> set[tuple[ReleaseRule, str | None]]:
        return {(it.rule, it.platform) for it in self.decision.rules if it.outcome is outcome}


def release(place: Place, *platforms: str) -> Release:
    """Run the project as it is, and decide."""
    finished = place.ci("run", *platforms, *place.options, "--gate")
    decision = newest_decision(place.folder / "results", "tiny")
    assert decision, finished.stderr
    return Release(code=finished.returncode, shown=finished.stdout, decision=decision)


@pytest.fixture(scope="module")
def releases(python: str, tmp_path_factory: pytest.TempPathFactory) -> list[Release]:
    """The first release, the next one, and one of it with all changes."""
    place = Place.make(tmp_path_factory.mktemp("releases"), "host", python, FILES)
    first = release(place, "cpu")
    place.git("tag", "v1.0")
    place.git("commit", "--quiet", "--allow-empty", "--message", "Nothing")
    usual = release(place, "cpu")
    place.write(CHANGES)
    return [first, usual, release(place, "cpu", "nvidia")]


def test_the_first_release_has_no_baseline(releases: list[Release]) -> None:
    first, *_ = releases
    assert first.rules(OutcomeKind.FAILED) == {(ReleaseRule.BASELINE, "cpu")}, first.shown
    assert first.code == ExitCode.PRODUCT_FAILURE


def test_the_usual_release_is_go(releases: list[Release]) -> None:
    _, usual, _ = releases
    assert usual.code == ExitCode.PASSED, usual.shown
    assert "\nrelease: go, no rule failed\n" in usual.shown
    met = usual.rules(OutcomeKind.PASSED)
    assert met >= {it for it in EVIDENCE if it[1] != "nvidia"}
    assert (ReleaseRule.REAL_DEVICE, "cpu") in met


def test_no_other_rule_is_broken(releases: list[Release]) -> None:
    *_, changed = releases
    broken = changed.rules(OutcomeKind.FAILED)
    of_cpu = {it for it in broken if it[1] != "nvidia"}
    assert of_cpu == {it for it in EVIDENCE if it[1] != "nvidia"}, changed.shown
    assert changed.code == changed.decision.exit_code == ExitCode.PRODUCT_FAILURE


@pytest.mark.parametrize("place", EVIDENCE, ids=[it.value for it, _ in EVIDENCE])
def test_a_real_change_is_no_go(
    releases: list[Release], place: tuple[ReleaseRule, str | None]
) -> None:
    *_, changed = releases
    [failed] = [it for it in changed.decision.failed if (it.rule, it.platform) == place]
    assert EVIDENCE[place] in failed.evidence
    sentence = f"failed: {failed.platform or 'release'}: {failed.rule}: {failed.evidence}"
    assert sentence in " ".join(changed.shown.split())  # a long one has two lines
