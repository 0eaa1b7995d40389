"""The strict loader: all findings at once, each with line, field, got, expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ci.errors import ConfigError, ExitCode
from ci.model.platforms import GROUPS, PLATFORMS
from ci.plan.load import load_config, load_site, schema_text
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from ci.util.invocation import REPOSITORY

PACKAGE = "expected only a package's name: letters, digits, '+', '-', '.' and '_'"
RESERVED = "expected another variable: this one is reserved, tests read the platform from it"
RESERVED_NAMES = ("INFINI_CI_PLATFORM", "INFINI_CI_TORCH_DEVICE", "INFINI_CI_SIMULATED")
UNIQUE = "a unique name ('image' and 'sync' are reserved for the engine)"
Write = Callable[[str], Path]
MINIMAL = "project: tiny\nplatforms:\n  cpu: {}\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "ci.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def findings(path: Path) -> list[str]:
    with pytest.raises(ConfigError, match=r"ci\.yaml:\d+: ") as caught:
        load_config(path)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value).splitlines()


def test_a_minimal_configuration_installs_and_tests(write: Write) -> None:
    config = load_config(write(MINIMAL))
    assert [stage.name for stage in config.stages] == ["install", "pytest"]
    assert config.stages[1].kind is StageKind.PYTEST


def test_extras_and_groups_by_name(write: Write) -> None:
    text = "install: .[a,b] -r c.txt\ngroups: [test, docs]\ntest: pytest -x\n"
    config = load_config(write(MINIMAL + text))
    assert [(stage.command, stage.kind) for stage in config.stages] == [
        ("python -m pip install .[a,b] -r c.txt --group=test --group=docs", StageKind.COMMAND),
        ("pytest -x", StageKind.PYTEST),
    ]


def test_this_projects_own_configuration() -> None:
    config = load_config(REPOSITORY / "ci.yaml")
    names = ["generate", "wheel", "install", "pytest", "bench"]
    assert [stage.name for stage in config.stages] == names
    counted = [stage.column for stage in config.stages if not stage.on_request]
    assert counted == [*[Column.BUILD_INSTALL] * 3, Column.PYTEST]
    assert config.distributions == "dist"
    assert "generated" in config.artifacts


SIMULATED = REPOSITORY / "tests" / "simulated" / "ci.yaml"
WITHOUT_CUDA = {"cpu", "cambricon", "ascend"}  # no option for kernels in CUDA


def test_the_release_without_a_vendors_hardware() -> None:
    config = load_config(SIMULATED)
    assert list(config.platforms) == list(PLATFORMS)
    for name, platform in config.platforms.items():
        assert platform.simulated is (name != "cpu")
        options = dict.fromkeys(["WITH_CPU=ON", f"WITH_{name.upper()}=ON"])
        if name not in WITHOUT_CUDA:
            options["WITH_CUDA_KERNELS=OFF"] = None
        given = platform.environment["SKBUILD_CMAKE_DEFINE"]
        assert given.split(";") == [*options, "AUTO_DETECT_DEVICES=OFF"]


def test_a_simulated_device_is_no_part_of_what_is_measured() -> None:
    stages = load_config(SIMULATED).stages
    beside = [stage for stage in stages if stage.name.startswith("simulated-device")]
    assert len(beside) == 2
    for stage in beside:
        assert stage.column is Column.NONE
        simulable = {name for name, platform in PLATFORMS.items() if platform.is_simulable}
        assert {*(stage.platforms or ())} == simulable - {"cpu"}
    *build, suite, suite_on_device = (stage for stage in stages if stage not in beside)
    own = load_config(REPOSITORY / "ci.yaml").stages
    *own_build, own_suite = (stage for stage in own if not stage.on_request)
    assert build == own_build
    assert suite.command == f"{own_suite.command} --hang-after 900"
    of_one_process = suite.command.replace(" -n logical --maxprocesses=8 --maxschedchunk=200", "")
    assert suite_on_device.command == f"{of_one_process} --ignore=tests/ops/test_cpp.py"
    assert {suite.column, suite_on_device.column} == {own_suite.column}


def test_all_findings_come_together(write: Write) -> None:
    text = """\
project: Tiny
projct: x
platforms:
  cpuu: {}
  cpu:
    lable: CPU
    memory_bytes: "12"
    environment:
      A: on
      A: 3
stages:
  - name: generate
    command: python -m x && y
    colum: build_install
  - name: test
    kind: pytst
    command: [a]
  - command: x
network: {pip_index: 3, ca_bundle: 2026-01-01, http_proxy: !!binary aGk=}
"""
    found = findings(write(text))
    assert [line.split(": got ")[0] for line in found] == [
        "ci.yaml:1: project",
        "ci.yaml:2: projct",
        "ci.yaml:4: platforms.cpuu",
        "ci.yaml:6: platforms.cpu.lable",
        "ci.yaml:7: platforms.cpu.memory_bytes",
        "ci.yaml:9: platforms.cpu.environment.A",
        "ci.yaml:10: platforms.cpu.environment.A",
        "ci.yaml:13: stages.0.command",
        "ci.yaml:14: stages.0.colum",
        "ci.yaml:16: stages.1.kind",
        "ci.yaml:17: stages.1.command",
        "ci.yaml:18: stages.2.name",
        "ci.yaml:19: network.http_proxy",
        "ci.yaml:19: network.pip_index",
    ]


NOTHING = "got nothing, expected a value; this key is required"
WORDS = "expected a variable's name of letters, digits and underscores"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("project: tiny\n", f"1: platforms: {NOTHING}"),
        ("", f"1: platforms: {NOTHING}"),
        ("- a\n", "1: got a list, expected a mapping"),
        ("project: tiny\nplatforms: {}\n", "2: platforms: got a mapping, expected at least one"),
        (
            "project: tiny\nplatforms: {cpuu: {}}\n",
            "2: platforms.cpuu: got 'cpuu', expected one of "
            + ", ".join(f"'{name}'" for name in PLATFORMS)
            + ", or a new one with a file in ci/platforms; did you mean 'cpu'?",
        ),
        ("a: &a\n  b: *a\n" + MINIMAL, "2: a.b: got an alias of another value, expected the value"),
        ("[a]: 1\n" + MINIMAL, "1: got a list or mapping as a key, expected a name"),
    ],
)
def test_a_finding(write: Write, text: str, finding: str) -> None:
    assert any(it.startswith(f"ci.yaml:{finding}") for it in findings(write(text)))


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "artefacts: {}",
            "artefacts: got an unknown key, expected one of artifacts, contracts, distributions,"
            " groups, install, network, pass_environment, platforms, project, read_only_root,"
            " release, retention, selection, source, stages, system_packages, test,"
            " writable_folders; did you mean 'artifacts'?",
        ),
        ("install: a && b", 'install: got "a && b" (string), expected one command'),
        ("groups: [a b]", 'groups.0: got "a b" (string), expected a string that matches'),
        ("test: ''", 'test: got "" (string), expected a command line with at least one word'),
        (
            "test: pytest\nstages: [{name: a, command: b, kind: pytest}]",
            "test: got \"pytest\" (string), expected nothing, as 'stages' has the commands",
        ),
        ("project: twice", "project: got a duplicate key, first given on line 1"),
        ("artifacts: {x: /etc/passwd}", 'artifacts.x: got "/etc/passwd" (string), expected a'),
        ("artifacts: {x: a/**.b}", "artifacts.x: got \"a/**.b\" (string), expected '**' only"),
        ('artifacts: {x: "\\udce9"}', "artifacts.x: got '\\udce9', expected text"),
        ("stages: [{name: a, command: make}]", "stages: got a list, expected exactly one stage"),
        ("system_packages: less", 'system_packages: got "less" (string), expected a list'),
        ("system_packages: [less, a; b]", f'system_packages.1: got "a; b" (string), {PACKAGE}'),
        ("system_packages: [--a]", f'system_packages.0: got "--a" (string), {PACKAGE}'),
        (
            "system_packages: {apt: [less], dnf: [3]}",
            "system_packages.dnf.0: got 3 (integer), expected a string",
        ),
        ("system_packages: {apt: [less]}", f"system_packages.dnf: {NOTHING}"),
        (
            "system_packages: {atp: [less], dnf: []}",
            "system_packages.atp: got an unknown key, expected one of apt, dnf; did you mean 'apt'",
        ),
    ],
)
def test_a_finding_of_the_project(write: Write, text: str, finding: str) -> None:
    found = findings(write(f"{MINIMAL}{text}\n"))
    assert any(it.startswith(f"ci.yaml:4: {finding}") for it in found)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("shm_size_bytes: 1.5", "shm_size_bytes: got 1.5 (number), expected an integer"),
        (
            f"shm_size_bytes: {2**63}",
            f"shm_size_bytes: got {2**63} (integer), expected less than or equal to {2**63 - 1}",
        ),
        ("memory_bytes: 1", "memory_bytes: got 1 (integer), expected greater than or"),
        # With this suffix, apt-get would remove the package.
        ("system_packages: [less-]", f'system_packages.0: got "less-" (string), {PACKAGE}'),
        ('environment: {"A\\0": x}', "environment: got 'A\\x00' as a key, expected a name"),
        ("environment: {A=B: x}", f"environment.A=B: got 'A=B', {WORDS}"),
        ("compiler_cache_of: plugins", 'compiler_cache_of: got "plugins" (string), expected one'),
        *(
            (f"environment: {{{name}: x}}", f"environment.{name}: got '{name}', {RESERVED}")
            for name in RESERVED_NAMES
        ),
    ],
)
def test_a_finding_of_a_platform(write: Write, text: str, finding: str) -> None:
    [found] = findings(write(f"project: tiny\nplatforms:\n  cpu: {{{text}}}\n"))
    assert found.startswith(f"ci.yaml:3: platforms.cpu.{finding}")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "command: x, kind: pytst",
            "kind: got \"pytst\" (string), expected one of 'command', 'pytest' or 'benchmark'; did",
        ),
        ("command: 'a \"b'", 'command: got "a \\"b" (string), expected a command line (No'),
        ('command: "a\\0b"', "command: got 'a\\x00b', expected text"),
        ("command: x, reruns: 2", "reruns: got 2 (integer), expected 0, or 'kind: pytest'"),
        (
            "command: x, kind: benchmark, benchmarks: a, column: build_install",
            "column: got \"build_install\" (string), expected 'pytest' or 'none' for a benchmark",
        ),
        (
            "command: x, kind: benchmark",
            "benchmarks: got nothing (null), expected the file of results",
        ),
        (
            "command: x, benchmarks: a",
            "benchmarks: got \"a\" (string), expected nothing, or 'kind: benchmark' for the stage",
        ),
        *(
            (
                f"command: x, kind: benchmark, benchmarks: '{path}'",
                f'benchmarks: got "{path}" (string), expected {expected}',
            )
            for path, expected in {
                ".": "the path of a file or folder in the workspace, without a pattern",
                "*.json": "the path of a file or folder in the workspace, without a pattern",
                "/out": "a relative path without '..'",
                "../out": "a relative path without '..'",
            }.items()
        ),
        (
            "command: x, kind: pytest, column: build_install",
            "column: got \"build_install\" (string), expected 'pytest' or 'none' for",
        ),
        ("command: x, timeout_s: .nan", "timeout_s: got NaN (number), expected a finite number"),
        (
            "command: x, timeout_s: 1.0e+10",
            "timeout_s: got 10000000000.0 (number), expected less than or equal to 10000000",
        ),
        ("command: x, network: off", "network: got false (boolean), expected one of 'full'"),
        ("command: x, environment: {a b: x}", f"environment.a b: got 'a b', {WORDS}"),
        (
            "command: x, kind: pytest, platforms: [cpu, metax]",
            'platforms.1: got "metax" (string), expected one of this file\'s platforms: cpu',
        ),
        (
            "command: x, kind: pytest, platforms: [plugins]",
            'platforms.0: got "plugins" (string), expected one of this file\'s platforms: cpu',
        ),
        ("command: x, kind: pytest, platforms: [toaster]", "platforms.0: got"),
        ("command: x, kind: pytest, platforms: []", "platforms: got a list, expected at least one"),
        *(
            (
                f"command: x, environment: {{{name}: x}}",
                f"environment.{name}: got '{name}', {RESERVED}",
            )
            for name in RESERVED_NAMES
        ),
    ],
)
def test_a_finding_of_a_stage(write: Write, text: str, finding: str) -> None:
    found = findings(write(f"{MINIMAL}stages:\n- {{name: t, {text}}}\n"))
    assert any(it.startswith(f"ci.yaml:5: stages.0.{finding}") for it in found)


@pytest.mark.parametrize(
    ("first", "second", "finding"),
    [
        ("name: a", "name: a, kind: pytest", f'1.name: got "a" (string), expected {UNIQUE}'),
        ("name: sync", "name: t, kind: pytest", f'0.name: got "sync" (string), expected {UNIQUE}'),
        (
            "name: t, kind: pytest, network: none",
            "name: after",
            "1.network: got nothing (null), expected 'none', since stage t",
        ),
    ],
)
def test_a_finding_of_two_stages(write: Write, first: str, second: str, finding: str) -> None:
    stages = f"stages: [{{command: x, {first}}}, {{command: x, {second}}}]\n"
    [found] = findings(write(MINIMAL + stages))
    assert found.startswith(f"ci.yaml:4: stages.{finding}")


FILES_OF_A_RUN = ("events.jsonl", "engine-events.jsonl", "pytest.jsonl", "junit.xml")


@pytest.mark.parametrize("name", [*FILES_OF_A_RUN, "environment.json", "host.lock", "build.log"])
def test_an_artifact_never_takes_the_place_of_a_record(write: Write, name: str) -> None:
    [finding] = findings(write(f"{MINIMAL}artifacts: {{{name}: out}}\n"))
    expected = "expected another name: the run writes a file of this name itself"
    assert finding == f"ci.yaml:4: artifacts.{name}: got '{name}', {expected}"


@pytest.mark.parametrize("folder", ["/etc", "../contracts", ""])
def test_contracts_lie_in_the_source(write: Write, folder: str) -> None:
    [finding] = findings(write(f'{MINIMAL}contracts: "{folder}"\n'))
    assert finding.endswith("expected a relative path without '..'")


@pytest.mark.parametrize("depth", [50, 3000])
def test_deep_nesting_is_a_finding(write: Write, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    assert "got more than 16 levels" in findings(write(f"{MINIMAL}network: {nested}\n"))[0]


def test_nested_aliases_do_not_explode(write: Write) -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]" for n in range(1, 30))]
    aliases = [line for line in findings(write("\n".join(lines))) if ": got an alias" in line]
    assert len(aliases) == 29 * 9


@pytest.mark.parametrize(
    ("text", "line"),
    [("project: [\n", 2), ("a: b: c\n", 1), ("project: tiny\n\tx: 1\n", 2), ("a: \x07\n", 1)],
)
def test_invalid_yaml_names_the_line(write: Write, text: str, line: int) -> None:
    [finding] = findings(write(text))
    assert finding.startswith(f"ci.yaml:{line}: not valid YAML: ")


def test_no_object_is_ever_constructed(write: Write) -> None:
    found = findings(write(MINIMAL + "network: !!python/object/apply:os.getcwd []\n"))
    assert found[0].startswith("ci.yaml:4: network: got ")


GROUPED = """\
project: tiny
platforms:
  cpu: {memory_bytes: 8589934592}
  accelerators:
    requirements: all.txt
    simulated: true
    environment: {WITH: "{PLATFORM} {platform}", KEPT: all}
  plugins: {requirements: plugins.txt}
  ascend: {simulated: false, environment: {WITH: "{PLATFORM}", OWN: own}}
stages:
- {name: early, command: x, platforms: [plugins, cpu]}
- {name: a, command: x, kind: pytest, platforms: [cpu]}
- {name: a, command: x, kind: pytest, platforms: [accelerators]}
"""


def test_a_group_configures_its_platforms(write: Write) -> None:
    config = load_config(write(GROUPED))
    assert list(config.platforms) == list(PLATFORMS)
    cpu, nvidia, ascend = (config.platforms[name] for name in ("cpu", "nvidia", "ascend"))
    assert (cpu.memory_bytes, cpu.simulated, cpu.environment) == (8589934592, False, {})
    assert (nvidia.requirements, nvidia.simulated) == ("all.txt", True)
    assert nvidia.environment == {"WITH": "NVIDIA nvidia", "KEPT": "all"}
    assert (ascend.requirements, ascend.simulated) == ("plugins.txt", False)
    assert ascend.environment == {"WITH": "{PLATFORM}", "KEPT": "all", "OWN": "own"}
    early, own, suite = config.stages
    assert early.platforms == (*GROUPS["plugins"], "cpu")
    assert own.platforms == ("cpu",)
    assert suite.platforms == GROUPS["accelerators"]


def test_findings_in_a_group(write: Write) -> None:
    text = "project: t\nplatforms:\n  cpu: {}\n  accelerators:\n    environment:\n"
    assert findings(
        write(text + "      SKBUILD_CMAKE_DEFINE: WITH_CPU=ON;AUTO_DETECT_DEVICES=OFF\n")
    ) == [
        "ci.yaml:6: platforms.accelerators.environment.SKBUILD_CMAKE_DEFINE: got"
        ' "WITH_CPU=ON;AUTO_DETECT_DEVICES=OFF" (string), expected build option WITH_NVIDIA=ON for'
        " this platform"
    ]
    twice = "project: t\nplatforms: {cpu: {}, ascend: {}}\nstages:\n- {name: a, command: x}\n"
    [finding] = findings(write(twice + "- {name: a, command: x, platforms: [plugins]}\n"))
    assert finding.startswith('ci.yaml:5: stages.1.name: got "a" (string), expected a unique')


def test_each_platform_has_one_suite(write: Write) -> None:
    text = "project: tiny\nplatforms: {cpu: {}, metax: {}, ascend: {}}\nstages:\n"
    suite = "- {name: %s, command: x, kind: pytest, platforms: [%s]}\n"
    # Also of one name: each platform has it once.
    config = load_config(write(text + suite % ("a", "cpu") + suite % ("a", "ascend, metax")))
    assert [stage.platforms for stage in config.stages] == [("cpu",), ("ascend", "metax")]
    expected = "expected exactly one stage with 'kind: pytest' on"
    assert findings(write(text + suite % ("a", "cpu") + suite % ("b", "metax"))) == [
        f"ci.yaml:3: stages: got a list, {expected} ascend, found 0"
    ]
    assert findings(write(text + suite % ("a", "cpu, metax, ascend") + suite % ("b", "metax"))) == [
        f"ci.yaml:3: stages: got a list, {expected} metax, found 2"
    ]


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SKBUILD_CMAKE_DEFINE", "WITH_NVIDIA=ON", "WITH_METAX=ON for this platform, not"),
        ("SKBUILD_CMAKE_DEFINE", "WITH_METAX=ON;WITH_NVIDIA=1", "for this platform, not"),
        ("SKBUILD_CMAKE_DEFINE", "WITH_CPU=ON;WITH_METAX=OFF", "WITH_METAX=ON for this"),
        ("CMAKE_ARGS", "-G Ninja -D WITH_ASCEND:BOOL=yes", "WITH_METAX=ON for this platform, not"),
        ("CMAKE_ARGS", "-DWITH_CPU=ON -DAUTO_DETECT_DEVICES=OFF", "WITH_METAX=ON for this"),
    ],
)
def test_a_build_for_another_platform_is_a_finding(
    write: Write, variable: str, value: str, expected: str
) -> None:
    environment = f'environment: {{{variable}: "{value}"}}'
    [finding] = findings(write(f"project: t\nplatforms:\n  metax:\n    {environment}\n"))
    got = f'ci.yaml:4: platforms.metax.environment.{variable}: got "{value}" (string), expected '
    assert finding.startswith(got)
    assert expected in finding


@pytest.mark.parametrize(
    "value",
    [
        "WITH_CPU=ON;WITH_METAX=ON;WITH_NVIDIA=OFF",
        "WITH_METAX=ON;AUTO_DETECT_DEVICES=OFF",
        "WITH_CPU=ON;WITH_TORCH=ON",  # the device is to be detected
        "WITH_CUDA=ON;AUTO_DETECT_DEVICES=OFF;NOT_WITH_NVIDIA=ON",  # of another project
        "",
    ],
)
def test_a_build_for_the_platform_is_not_a_finding(write: Write, value: str) -> None:
    environment = f'environment: {{SKBUILD_CMAKE_DEFINE: "{value}"}}'
    load_config(write(f"project: t\nplatforms:\n  metax:\n    {environment}\n"))


def test_a_missing_file_says_which(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml: no such file"):
        load_config(tmp_path / "nothing.yaml")


def test_a_site_file_is_as_strict(tmp_path: Path) -> None:
    path = tmp_path / "ci.site.yaml"
    path.write_text("network: {http_prox: x}\nplatforms: {cpu: {base_image: a/b:1}}\n")
    with pytest.raises(ConfigError, match=r"ci.site.yaml:1: .*did you mean 'http_proxy'\?"):
        load_site(path)
    path.write_text("platforms: {cpu: {base_image: registry.example:5000/a/b@sha256:0}}\n")
    assert load_site(path).platforms["cpu"].base_image == "registry.example:5000/a/b@sha256:0"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "engines: {lab: {context: a}}\nplatforms:\n  cpu: {engine: labb}\n",
            r'yaml:3: platforms\.cpu\.engine: got "labb" \(string\), expected one of auto, docker,'
            r" host, podman, ray, lab, or one defined under 'engines'; did you mean 'lab'\?$",
        ),
        (
            "engines:\n  docker: {context: a}\n",
            r"yaml:2: engines\.docker: got a mapping, expected another name: 'docker' is reserved",
        ),
        (
            "engines:\n  Lab: {context: a}\n",
            r"yaml:2: engines\.Lab: got 'Lab', expected a string that matches \^\[a-z\]",
        ),
        (
            f"engines:\n  {'x' * 65}: {{context: a}}\n",
            r"x: got 'x+', expected a string of at most 64 characters$",
        ),
        (
            "engines: {lab: {docker_host: lab}}\nplatforms: {cpu: {engine: lab}}\n",
            r'^ci\.site\.yaml:1: engines\.lab\.docker_host: got "lab" \(string\), expected a'
            r" string that matches \^\(unix\|tcp\|ssh\)://\\S\+\$$",
        ),
        (
            "engines: {lab: {context: a, ray_address: 'head:6379'}}\n",
            r"engines\.lab: got a mapping, expected one of 'docker_host', 'context',"
            r" 'podman_host' and 'ray_address'$",
        ),
        (
            "engines: {lab: {ray_address: 'ray://head:10001'}}\n",
            r'engines\.lab\.ray_address: got "ray://head:10001" \(string\), expected a string that',
        ),
        (
            "engines: {lab: {context: a, node_engine: host}}\n",
            r"engines\.lab\.node_engine: got \"host\" \(string\), expected no 'node_engine' without"
            r" 'ray_address'$",
        ),
        (
            "platforms: {moore: {devices: {uuids: [GPU-0], count: 2}}}\n",
            r"moore\.devices\.count: got 2 \(integer\), expected at most 1, the number of 'uuids'",
        ),
        (
            "platforms: {moore: {devices: {uuids: [GPU-0, GPU-0], count: 2}}}\n",
            r"moore\.devices\.uuids: got a list, expected each device once$",
        ),
        (
            "platforms: {cpu: {devices: {privileged: 1}}}\n",
            r"ci\.site\.yaml:1: .*\.privileged: got 1 \(integer\), expected true or false$",
        ),
    ],
)
def test_what_a_site_says_wrong(tmp_path: Path, text: str, finding: str) -> None:
    path = tmp_path / "ci.site.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=finding):
        load_site(path)


def test_the_schema_file_is_up_to_date() -> None:
    current = (REPOSITORY / "ci" / "schema.json").read_text(encoding="utf-8")
    assert current == schema_text(), "run: python -m ci schema > ci/schema.json"
