"""A secret that reaches the code under test is in nothing that is shown or kept."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.parse import quote

import pytest
from docker.client import DockerClient
from docker.errors import DockerException

from ci.engines.docker.engine import DockerEngine
from tests.e2e.benches import ENGINES, engine_or_skip
from tests.e2e.bridge import machine_address
from tests.e2e.fresh import is_local_engine

ROOT = Path(__file__).resolve().parents[2]
BEGINNING = "pl4nte"  # of each secret: in base64, 6 bytes are 8 characters
# Variables of the caller, whose values the code under test gets under other names.
VARIABLES = {
    "LAB_KEY": "pl4nted/redact & <more>",  # `redact:` of the site file
    "DEPLOY_TOKEN": "pl4nted/token & <more>",
    "DB_PASSWORD": "pl4nted/passw & <more>",
    "CLOUD_API_KEY": "pl4nted/apikey & <more>",
}
# Passwords in addresses.
INDEX, TOKEN, LINKS = "pl4nted/index&more", "pl4nted-token-of-an-index", "pl4nted/links&more"
PROXY = "pl4nted-of-the-proxy"
OF_NETWORK = (INDEX, TOKEN, LINKS, PROXY)


def forms(*secrets: str) -> list[bytes]:
    found = {
        form
        for secret in secrets
        for form in (
            secret,
            quote(secret),
            quote(secret, safe=""),
            escape(secret),
            json.dumps(secret)[1:-1],
            base64.b64encode(secret.encode()).decode().rstrip("="),
        )
    }
    return [form.encode() for form in found]


CONFIG = f"""
project: leaky
platforms:
  cpu:
    compiler_cache: false
    environment: {json.dumps(dict(zip("ABCD", VARIABLES.values(), strict=True)))}
stages:
  - {{name: print, command: python leak.py}}
  - {{name: install, command: python -m pip install --retries 0 private-tool}}
  - {{name: pytest, command: python -m pytest, kind: pytest}}
artifacts:
  packed: packed
  leaked.txt: leaked.txt
"""
LEAK = """
import base64, os, pathlib, urllib.parse

known = [*map(os.environ.get, "ABCD"), *os.environ.values()]
if "NETRC" in os.environ:
    known += pathlib.Path(os.environ["NETRC"]).read_text().split()
lines = []
for secret in known:
    encoded = base64.b64encode(secret.encode()).decode()
    lines += [secret, urllib.parse.quote(secret), repr(secret), encoded]
text = "\\n".join(lines)
print(text)
assert "@" in os.environ["HTTP_PROXY"]  # a stage that may download packages
pathlib.Path("leaked.txt").write_text(text)
pathlib.Path("packed").mkdir()
pathlib.Path("packed", "leaked.txt").write_text(text)
"""
TEST = """
import os, pathlib, re, time

import private_tool
import pytest


KEYS = [os.environ[name] for name in "ABCD"]


@pytest.mark.parametrize("key", KEYS, ids=["a", "b", "c", KEYS[3]])
def test_key(key):
    print(key)
    assert key == "another", key


def test_proxy():
    assert os.environ["HTTP_PROXY"] == "http://127.0.0.1:9"


def test_processes():
    time.sleep(1)  # to be seen from outside
    assert "NETRC" not in os.environ
    if os.getcwd() != "/workspace":  # not in a container
        return
    for path in pathlib.Path("/proc").glob("[0-9]*/*"):
        if path.name in ("environ", "cmdline"):
            try:
                content = path.read_bytes()
            except OSError:  # a process of the agent's
                continue
            assert not re.search(rb"://[^/\\0 ]+@", content), path
"""


@dataclass
class Index:
    """A package index with passwords; each page has names of its own for the same address."""

    server: ThreadingHTTPServer
    host: str
    opened: set[str] = field(default_factory=set)

    @property
    def variables(self) -> dict[str, str]:
        """pip's settings, in addition to those of this machine."""
        port = self.server.server_port
        number = int.from_bytes(socket.inet_aton(self.host))
        hosts = [self.host, str(number), hex(number)]
        added = {
            "PIP_EXTRA_INDEX_URL": f"http://me:{quote(INDEX, safe='')}@{hosts[0]}:{port}/index"
            f" http://{TOKEN}@{hosts[1]}:{port}/token",
            "PIP_FIND_LINKS": f"http://me:{quote(LINKS, safe='')}@{hosts[2]}:{port}/links/",
            "PIP_TRUSTED_HOST": " ".join(hosts),
            "NO_PROXY": ",".join(hosts),
            "HTTP_PROXY": f"http://me:{PROXY}@127.0.0.1:9",
        }
        before = {name: os.environ[name] for name in added if os.environ.get(name)}
        return {
            name: f"{before[name]} {value}" if name.startswith("PIP") and name in before else value
            for name, value in added.items()
        }


def wheel() -> bytes:
    name, content = "private_tool-1.dist-info", io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("private_tool.py", "")
        metadata = "Metadata-Version: 2.1\nName: private-tool\nVersion: 1\n"
        archive.writestr(f"{name}/METADATA", metadata)
        archive.writestr(f"{name}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{name}/RECORD", "")
    return content.getvalue()


FILE = "private_tool-1-py3-none-any.whl"
USERS = {"index": f"me:{INDEX}", "token": f"{TOKEN}:", "links": f"me:{LINKS}"}


class Handler(BaseHTTPRequestHandler):
    index: Index

    def do_GET(self) -> None:
        page, _, rest = self.path.strip("/").partition("/")
        expected = "Basic " + base64.b64encode(USERS[page].encode()).decode()
        if self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return
        self.index.opened.add(page)
        is_page = rest == "private-tool"
        self.send_response(200 if is_page or rest.endswith(".whl") else 404)
        self.send_header("Content-Type", "text/html" if is_page else "application/octet-stream")
        self.end_headers()
        self.wfile.write(f'<a href="{FILE}">{FILE}</a>'.encode() if is_page else wheel())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def index(engine: str) -> Iterator[Index]:
    host = "127.0.0.1"
    if engine == "docker":
        client = DockerClient.from_env()
        host = machine_address(client)
        client.close()
    with ThreadingHTTPServer((host, 0), Handler) as server:
        Handler.index = Index(server, host)
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Handler.index
        server.shutdown()
        thread.join()


class Watcher(Thread):
    """Keeps what the process list and the engine show of a run while it goes on."""

    def __init__(self, client: DockerClient | None) -> None:
        super().__init__()
        self.client = client
        self.ended = Event()
        self.seen: dict[str, bytes] = {}
        self.programs: set[str] = set()

    def run(self) -> None:
        while not self.ended.wait(0.1):
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):  # it has ended
                    self._look_at(folder)
            if self.client is not None:
                with suppress(DockerException):
                    self._ask(self.client)

    def _look_at(self, folder: Path) -> None:
        command = (folder / "cmdline").read_bytes()
        self.seen[f"command {folder.name} {command[:50]!r}"] = command
        for program in (b"agent.pyz", b"-m\0pytest\0--report-log"):
            # On this machine the agent is a process of the user who has the passwords.
            if program in command and (self.client or b"pytest" in program):
                self.programs.add(program.decode())
                self.seen[f"environ {folder.name} {program!r}"] = (folder / "environ").read_bytes()

    def _ask(self, client: DockerClient) -> None:
        for container in client.containers.list(filters={"label": "infini-ci.project=leaky"}):
            facts = [container.top(ps_args="axeww -o pid,args"), container.attrs["Config"]["Env"]]
            own = [fact for fact in facts[1] if fact.partition("=")[0] not in "ABCD"]
            self.programs.add("top")
            self.seen["docker top"] = json.dumps(facts[0]).encode()
            self.seen["docker inspect"] = json.dumps(own).encode()


def found_in(content: dict[str, bytes], *secrets: str) -> list[tuple[str, bytes]]:
    wanted, begun = forms(*secrets), forms(BEGINNING)
    assert all(any(start in form for start in begun) for form in wanted)
    return [
        (name, form)
        for name, text in content.items()
        if any(start in text for start in begun)  # an image has 500 MB
        for form in wanted
        if form in text
    ]


def files_below(folder: Path) -> dict[str, bytes]:
    content = {}
    for path in folder.rglob("*"):
        if path.is_file():
            read = gzip.open if path.suffix == ".gz" else Path.open
            with read(path, "rb") as file:
                content[str(path)] = file.read()
    return content


@pytest.mark.complete  # tests/e2e/test_docker_engine.py has the passwords of a build
@pytest.mark.parametrize("engine", ENGINES)
def test_a_planted_secret_is_nowhere(engine: str, index: Index, tmp_path: Path) -> None:
    """Eight kinds of secret, in every form that redaction knows."""
    used = engine_or_skip(engine)
    client = used.client if isinstance(used, DockerEngine) else None
    if client is not None and not is_local_engine():
        pytest.skip("the engine's containers cannot reach this machine")
    project, results = tmp_path / "project", tmp_path / "results"
    files = {"ci.yaml": CONFIG, "leak.py": LEAK, "test_key.py": TEST}
    project.mkdir()
    for name, text in files.items():
        (project / name).write_text(text, encoding="utf-8")
    (tmp_path / "ci.site.yaml").write_text("redact: [LAB_KEY]\n", encoding="utf-8")
    site = {"INFINI_CI_SITE": str(tmp_path / "ci.site.yaml")}
    environment = {**os.environ, **VARIABLES, **index.variables, **site}
    config = f"--config={project / 'ci.yaml'}"

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ci", *map(str, arguments)]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    run = (
        "run",
        "cpu",
        f"--engine={engine}",
        f"--source={project}",
        f"--results={results}",
        config,
    )
    printed = call(*run, "--dry-run")
    watcher = Watcher(client)
    watcher.start()
    finished = call(*run)
    watcher.ended.set()
    watcher.join()
    shown = finished.stdout + finished.stderr
    assert finished.returncode == 1, shown  # the tests of the keys fail
    assert "***" in shown
    assert index.opened == {"index", "token", "links"}
    [row] = json.loads((results / "latest" / "results.json").read_text())["platforms"]
    assert (row["pytest"]["passed"], row["pytest"]["failed"]) == (2, 4), shown
    notes = "\n".join(row["notes"])
    assert "a secret value was hidden in junit.xml" in notes
    assert "packed.tar.gz was removed from the results" in notes
    exported = call(
        "export", "--format=csv", f"--output={tmp_path / 'tables'}", f"--results={results}"
    )
    assert exported.returncode == 0, exported.stderr
    reported = call("report", "--format=markdown", f"--results={results}")
    kept = {
        **files_below(results),
        **files_below(tmp_path / "tables"),
        "the output": shown.encode(),
        "the report": (reported.stdout + reported.stderr).encode(),
    }
    names = {Path(name).name for name in kept}
    assert {"print.log", "pytest.jsonl", "junit.xml", "leaked.txt", "ci.db", "tests.csv"} <= names
    assert found_in(kept, *VARIABLES.values(), *OF_NETWORK) == []
    # The configuration names the four values: only addresses are without their passwords.
    plan = {"the plan": printed.stdout.encode()}
    assert printed.returncode == 0, printed.stderr
    assert found_in({**watcher.seen, **plan}, *OF_NETWORK) == []
    if client is not None:
        assert watcher.programs == {"agent.pyz", "-m\0pytest\0--report-log", "top"}
        [tag] = re.findall(r"^image: (\S+)$", printed.stdout, re.MULTILINE)
        try:
            assert found_in(image_content(client, tag), *VARIABLES.values(), *OF_NETWORK) == []
        finally:
            client.images.remove(tag)
    used.close()


def image_content(client: DockerClient, tag: str) -> dict[str, bytes]:
    """All layers of an image, and what the engine knows of this image and those of its stages."""
    content = {f"part {number}": part for number, part in enumerate(client.images.get(tag).save())}
    for name in client.api.images(quiet=True, all=True):
        with suppress(DockerException):  # another test has removed it
            about = (client.api.history(name), client.api.inspect_image(name))
            content[f"image {name}"] = json.dumps(about).encode()
    return content
