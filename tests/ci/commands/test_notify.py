"""``--notify URL``: a POST for each alarm or failed run, and no effect on the exit code."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from ci.cli import main
from ci.commands import run as run_command
from ci.errors import ExitCode, InfrastructureError
from ci.store.folder import default_url
from ci.util import webhook
from ci.util.invocation import REPOSITORY
from ci.util.process import NOTIFY_VARIABLE, inherited_environment
from ci.util.text import hide_values
from tests.ci.postgresql_server import connected
from tests.ci.stored_history import ENVIRONMENT, Project, noisy, result
from tests.ci.workplace import Workplace, new_workplace

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


class Receiver(HTTPServer):
    """A webhook on this machine, with prepared answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.users: list[str | None] = []
        self.answers: list[tuple[int, bytes]] = []
        """Of the next requests; then 200."""
        self.drips = False
        """Whether it sends a byte of its answer now and then."""
        self.ended = threading.Event()
        self.address = f"127.0.0.1:{self.server_port}/hooks/hidden-word?token=hidden-token"
        self.url = f"http://{self.address}"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        self.server.users.append(self.headers["Authorization"])
        while self.server.drips and not self.server.ended.wait(0.01):
            self.wfile.write(b"H")
        status, answer = self.server.answers.pop(0) if self.server.answers else (200, b"ok")
        if not status:  # no HTTP at all
            self.wfile.write(answer)
            return
        self.send_response(status)
        if status in (301, 302):
            self.send_header("Location", self.server.url)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receiver(monkeypatch: Patch) -> Iterator[Receiver]:
    monkeypatch.setattr(webhook, "BACKOFF_S", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()
    hide_values([])


def measure(project: Project, cpu: list[float], seed: int = 0) -> None:
    for seconds in cpu:
        project.measure(result(seconds), result(3 * seconds + seed, platform="moore"))


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(folder=tmp_path_factory.mktemp("slower"))
    measure(project, [*noisy(100, 12, 1), *noisy(120, 8, 2)])
    project.configure()
    return project


@dataclass
class Check:
    """``history --check --notify`` of a project."""

    project: Project
    url: str
    capsys: Output

    def __call__(self, *options: str, url: str | None = None) -> str:
        """Expect the exit code of a regression; return the errors and warnings."""
        words = ["history", "--check", "--results", str(self.project.results)]
        words += ["--source", str(self.project.source), "--notify", url or self.url, *options]
        assert main(words) == ExitCode.REGRESSION
        said = self.capsys.readouterr()
        assert "open regression" in said.out
        assert "hidden-" not in said.out + said.err
        return said.err


@pytest.fixture
def check(slower: Project, tmp_path: Path, receiver: Receiver, capsys: Output) -> Check:
    return Check(slower.copy(tmp_path), receiver.url, capsys)


def test_an_alarm_is_sent_once_and_not_once_per_run(check: Check, receiver: Receiver) -> None:
    for _ in range(2):
        assert check() == ""
    for seconds in noisy(120, 3, 3):
        measure(check.project, [seconds])
        assert check() == ""
        assert check("cpu") == ""
    [body] = receiver.bodies
    assert body["schema_version"] == 1
    assert (body["project"], body["branch"], body["kind"]) == ("tiny", "main", "regression")
    assert [row["platform"] for row in body["rows"]] == ["cpu", "moore"]
    assert body["text"].startswith("tiny of main: regression: install up to +2")
    assert body["first_run_after"]["run_id"] == "run-012"
    assert f"\nalarm {body['id']}: open\n" in body["text"]
    assert "; seen in 8 runs\n" in body["text"]
    assert "probability" not in body["text"]


def test_the_body_is_the_documented_one(check: Check, receiver: Receiver) -> None:
    page = (REPOSITORY / "docs" / "reference" / "alarms.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    check()
    [body], shown = receiver.bodies, json.loads(block)
    assert [*shown] == [*body]
    for name in ("last_run_before", "first_run_after"):
        assert shown[name].keys() == body[name].keys()
    assert shown["rows"][0].keys() == body["rows"][0].keys()
    assert shown["rows"][0]["change"].keys() == body["rows"][0]["change"].keys()


def test_a_further_rise_is_another_alarm(check: Check, receiver: Receiver) -> None:
    check()
    measure(check.project, noisy(160, 8, 4))
    check()
    assert [it["first_run_after"]["run_id"] for it in receiver.bodies] == ["run-012", "run-020"]


def test_a_platform_that_joins_an_alarm_is_not_another_one(
    check: Check, receiver: Receiver
) -> None:
    check("cpu")
    check()
    check("moore")
    assert [[row["platform"] for row in it["rows"]] for it in receiver.bodies] == [["cpu"]]


def change_sent(check: Check, statement: str) -> None:
    """Let an earlier check have sent something else."""
    with connected(default_url(check.project.results)) as connection:
        connection.execute(text(statement))


def test_an_alarm_that_began_elsewhere_is_corrected_once(check: Check, receiver: Receiver) -> None:
    check()
    place = "before_run_id = 'run-008', run_id = 'run-009'"
    change_sent(check, f"UPDATE alarm_messages SET {place}, latest_run_id = 'run-012'")  # noqa: S608
    change_sent(check, f"UPDATE alarm_rises SET {place}")  # noqa: S608
    for _ in range(2):
        check()
    new, corrected = receiver.bodies
    assert (corrected["event"], corrected["id"]) == ("corrected", new["id"])
    assert corrected["corrects"] == {
        "last_run_before": "run-008",
        "first_run_after": "run-009",
        "headline": "install +20 %",
    }
    assert corrected["first_run_after"]["run_id"] == "run-012"
    said = corrected["text"]
    assert said.startswith("tiny of main: correction: regression: install up to +2")
    assert "\nafter run-011 (" in said
    assert "\nand not, as it seemed before, after run-008, with run-009\n" in said


def test_a_message_that_named_half_of_the_rise_is_corrected_once(
    check: Check, receiver: Receiver
) -> None:
    check()
    said = "measure = 'total.wall_s', size = 0.06, latest_run_id = 'run-015'"
    change_sent(check, f"UPDATE alarm_messages SET {said}")  # noqa: S608
    for _ in range(2):
        check()
    new, corrected = receiver.bodies
    assert (corrected["event"], corrected["id"]) == ("corrected", new["id"])
    assert corrected["corrects"]["headline"] == "total +6.0 %"
    assert "\nand not, as it seemed before, total +6.0 %\n" in corrected["text"]


def test_a_fall_that_stays_is_not_corrected(check: Check, receiver: Receiver) -> None:
    """Of the share of executed tests, which should be high: by 2 % and by 10 %."""

    def measure_skipped(cpu: int, moore: int) -> None:
        rows = []
        for name, count in (("cpu", cpu), ("moore", moore)):
            row = result(platform=name)
            assert row.pytest is not None
            suite = row.pytest.model_copy(update={"passed": 100 - count, "skipped": count})
            rows.append(row.model_copy(update={"pytest": suite}))
        check.project.measure(*rows)

    folder = check.project.folder / "fewer"
    folder.mkdir()
    check.project = Project(folder=folder)
    for skipped in [(0, 0)] * 4 + [(2, 10)] * 2:
        measure_skipped(*skipped)
    check.project.configure()
    check()
    for _ in range(4):
        measure_skipped(2, 10)
        check()
    [body] = receiver.bodies
    assert body["headline"] == "pytest executed tests up to -10 % on cpu, moore"


def test_a_place_that_is_not_known_better_is_not_corrected(
    check: Check, receiver: Receiver
) -> None:
    """The message named it after 8 runs, and there are no more since."""
    check()
    change_sent(check, "UPDATE alarm_messages SET before_run_id = 'run-008', run_id = 'run-009'")
    check()
    assert [it["event"] for it in receiver.bodies] == ["new"]


def test_a_narrower_range_is_no_correction(check: Check, receiver: Receiver) -> None:
    check()
    change_sent(check, "UPDATE alarm_messages SET before_run_id = 'run-008', run_id = 'run-014'")
    change_sent(check, "UPDATE alarm_messages SET latest_run_id = 'run-014'")
    check()
    assert [it["event"] for it in receiver.bodies] == ["new"]


def test_an_alarm_that_moved_far_is_the_same_one(check: Check, receiver: Receiver) -> None:
    """A step between the same levels, of which nothing is left where it was."""
    check()
    change_sent(check, "UPDATE alarm_rises SET before_run_id = 'run-001', run_id = 'run-002'")
    check()
    assert [it["event"] for it in receiver.bodies] == ["new"]


def test_a_cost_that_is_back_is_resolved_once(check: Check, receiver: Receiver) -> None:
    check()
    measure(check.project, noisy(100, 8, 4))
    words = ("--check", "--notify", receiver.url, "--source", str(check.project.source))
    for _ in range(2):
        assert check.project.ci("history", *words)[0] == ExitCode.PASSED
    new, resolved = receiver.bodies
    assert (resolved["event"], resolved["state"]) == ("resolved", "resolved")
    assert resolved["id"] == new["id"]
    assert resolved["why"].startswith("undone by run-020 (commit ")
    assert (resolved["rows"], resolved["first_run_after"]) == ([], None)
    first, second = resolved["text"].splitlines()
    assert re.fullmatch(r"tiny of main: resolved: .+ \+\d+ % on cpu, moore", first)
    assert second == f"alarm {new['id']}: resolved: {resolved['why']}"


def test_a_rise_that_is_no_longer_found_is_resolved(check: Check, receiver: Receiver) -> None:
    """Not at once: with the next runs it may be found again."""
    check()
    rise = "measure = 'sync.wall_s', before = 1, level = 2"
    change_sent(check, "DELETE FROM alarm_rises WHERE measure <> 'install.wall_s'")
    change_sent(check, f"UPDATE alarm_rises SET {rise}")  # noqa: S608
    change_sent(check, "UPDATE alarm_messages SET latest_run_id = 'run-014'")
    check()
    assert [it["event"] for it in receiver.bodies] == ["new", "new"]
    change_sent(check, "UPDATE alarms SET seen_run_id = 'run-014' WHERE position = 1")
    check("cpu")  # other platforms may still have it
    assert len(receiver.bodies) == 2
    check()
    assert receiver.bodies[2]["id"] == receiver.bodies[0]["id"]
    assert receiver.bodies[2]["why"] == "with more runs, the rise is no longer found"


def test_an_accepted_alarm_is_resolved_and_open_again_once_that_ends(
    check: Check, receiver: Receiver
) -> None:
    words = ("--check", "--notify", receiver.url, "--source", str(check.project.source))
    check("cpu")
    accept = ("run-012", "--reason", "x", "--until", "2999-01-31")
    assert check.project.accept(*accept)[0] == ExitCode.PASSED
    for _ in range(2):
        assert check.project.ci("history", "cpu", *words)[0] == ExitCode.PASSED
    file = check.project.source / "ci-accepted.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("2999", "2020"), encoding="utf-8")
    for _ in range(2):
        check("cpu")
    assert [it["event"] for it in receiver.bodies] == ["new", "resolved", "reopened"]
    assert len({it["id"] for it in receiver.bodies}) == 1
    assert re.fullmatch("accepted by .+: x", receiver.bodies[1]["why"])
    assert receiver.bodies[2]["text"].startswith("tiny of main: open again: regression: install")


def test_a_check_of_one_platform_resolves_no_alarm_of_others(
    check: Check, receiver: Receiver
) -> None:
    check()
    assert check.project.accept("run-012", "--reason", "x")[0] == ExitCode.PASSED
    words = ("--check", "--notify", receiver.url, "--source", str(check.project.source))
    assert check.project.ci("history", "cpu", *words)[0] == ExitCode.PASSED
    assert [it["event"] for it in receiver.bodies] == ["new"]


def test_a_rise_with_an_environment_is_sent_if_it_fails_the_check(
    check: Check, receiver: Receiver
) -> None:
    newer = {**ENVIRONMENT, "compiler": "g++ 13.1"}
    for seconds in noisy(180, 6, 5):
        check.project.measure(result(seconds, environment=newer))
    check("cpu")
    for _ in range(2):
        check("cpu", "--fail-on", "environment")
    assert [it["kind"] for it in receiver.bodies] == ["regression", "environment"]
    message = receiver.bodies[1]["text"]
    assert message.startswith("tiny of main: together with a change of the environment: install +")
    assert "\ncause on cpu: compiler changed: g++ 12.2 -> g++ 13.1" in message


def test_each_address_gets_the_alarm(check: Check, receiver: Receiver) -> None:
    for suffix in ("a", "b", "a"):
        check(url=check.url + suffix)
    assert len(receiver.bodies) == 2


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("slack", {"text"}),
        ("feishu", {"msg_type", "content"}),
        ("dingtalk", {"msgtype", "text"}),
    ],
)
def test_chat_services_get_their_forms(
    check: Check, receiver: Receiver, form: str, expected: set[str]
) -> None:
    receiver.answers = [(200, b'{"code": 0, "errcode": 0, "msg": "success"}')]
    assert check(url=f"{form}+{receiver.url}") == ""
    [body] = receiver.bodies
    assert body.keys() == expected
    assert "install up to +2" in json.dumps(body)
    if form == "slack":
        assert "s -&gt; " in body["text"]


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("slack", {"text": '&lt;!channel&gt; &lt;at user_id="all"&gt;'}),
        ("feishu", {"msg_type": "text", "content": {"text": '<!channel> < at user_id="all">'}}),
    ],
)
def test_names_in_a_message_notify_no_group(form: str, shown: dict[str, Any]) -> None:
    assert webhook.FORMS[form]('<!channel> <at user_id="all">', {}) == shown


def test_a_fault_is_tried_again(check: Check, receiver: Receiver) -> None:
    receiver.answers = [(503, b""), (429, b"")]
    for _ in range(2):
        assert check() == ""
        assert len(receiver.bodies) == 3


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(404, b"no hidden-word here")], "got status 404, expected 200"),
        ([(302, b"")], "got status 302, expected 200"),
        ([(301, b"")], "got status 301, expected 200"),
        ([(500, b"")] * 4, "got status 500, expected 200"),
    ],
)
def test_a_refusal_is_a_warning_and_is_sent_by_the_next_check(
    check: Check, receiver: Receiver, answers: list[tuple[int, bytes]], message: str
) -> None:
    receiver.answers = [*answers]
    error = check()
    assert error.startswith(f"warning: --notify: 127.0.0.1: {message}")
    assert error.endswith("\nCheck the address of --notify.\n")
    assert len(receiver.bodies) == len(answers)
    assert check() == ""
    assert len(receiver.bodies) == len(answers) + 1


@pytest.mark.parametrize(
    ("form", "answer", "message"),
    [
        ("dingtalk", b'{"errcode": 310000, "errmsg": "keywords"}', "{'errcode': 310000,"),
        (
            "feishu",
            b'{"code": 9499, "msg": "/hooks/hidden-word"}',
            "{'code': 9499, 'msg': '/hooks/***'}",
        ),
        ("feishu", b'{"code": 1, "msg": "hidden-token"}' + b" " * (1 << 15), "{'code': 1,"),
    ],
)
def test_a_refusal_with_a_code_is_a_warning(
    check: Check, receiver: Receiver, form: str, answer: bytes, message: str
) -> None:
    receiver.answers = [(200, answer)]
    error = check(url=f"{form}+{receiver.url}")
    assert error.startswith(f"warning: --notify: 127.0.0.1: refused: {message}")
    assert check(url=f"{form}+{receiver.url}") == ""
    assert len(receiver.bodies) == 2


@pytest.mark.parametrize("answer", [b'{"code": 200, "message": "success"}', b"[" * 100_000, b"\0"])
def test_any_answer_to_json_is_fine(check: Check, receiver: Receiver, answer: bytes) -> None:
    receiver.answers = [(200, answer)]
    assert check() == ""
    assert len(receiver.bodies) == 1


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:1/hidden-word", "127.0.0.1: cannot be reached: "),
        ("http://u:hidden-word@127.0.0.1:1/x", "127.0.0.1: cannot be reached: "),
        ("http://a..b/hidden-word", "a..b: cannot be reached: "),
        ("http://[::1]:1/hidden-word", "::1: cannot be reached: "),
    ],
)
def test_a_host_that_cannot_be_reached_is_a_warning(
    check: Check, address: str, message: str
) -> None:
    assert f"warning: --notify: {message}" in check(url=address)


def test_a_server_that_never_answers_is_a_warning(check: Check, monkeypatch: Patch) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        error = check(url=f"http://127.0.0.1:{server.getsockname()[1]}/hidden-word")
    assert "warning: --notify: 127.0.0.1: cannot be reached: " in error
    assert "Read timed out." in error


def test_an_answer_without_end_is_a_warning(
    check: Check, receiver: Receiver, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(webhook, "LONGEST_S", 0.2)
    receiver.drips = True
    assert "warning: --notify: 127.0.0.1: no answer within 0.2 s" in check()


def test_a_server_of_another_protocol_is_a_warning(check: Check, receiver: Receiver) -> None:
    receiver.answers = [(0, b"220 mail.example.com\r\n")] * (1 + webhook.RETRIES)
    assert "warning: --notify: 127.0.0.1: cannot be reached: " in check()
    assert receiver.answers == []


def test_a_store_that_cannot_remember_is_a_warning(check: Check, receiver: Receiver) -> None:
    with connected(default_url(check.project.results)) as connection:
        connection.execute(text("CREATE TABLE keep AS SELECT * FROM alarm_messages"))
        connection.execute(text("DROP TABLE alarm_messages"))
        connection.execute(text("CREATE VIEW alarm_messages AS SELECT * FROM keep"))
    error = check()
    assert "warning: the store cannot save which alarms were sent: they will be sent again" in error
    assert len(receiver.bodies) == 1


def test_no_secret_is_stored(check: Check, receiver: Receiver) -> None:
    assert check(url=f"http://user:hidden-password@{receiver.address}") == ""
    assert receiver.users == ["Basic dXNlcjpoaWRkZW4tcGFzc3dvcmQ="]
    files = [it for it in check.project.results.rglob("*") if it.is_file()]
    assert files
    assert not any(b"hidden-" in it.read_bytes() for it in files)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://hooks.slack.com/services/T/B/X", "slack"),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/x", "feishu"),
        ("https://oapi.dingtalk.com/robot/send?access_token=x", "dingtalk"),
        ("https://ci.example.com/hook", "json"),
        ("json+https://hooks.slack.com/services/T/B/X", "json"),
        ("dingtalk+http://10.0.0.1:8080/x", "dingtalk"),
    ],
)
def test_the_form_follows_from_the_address(address: str, expected: str) -> None:
    found = webhook.split_form(address)
    assert found
    assert (found[0], found[1].partition(":")[0][:4]) == (expected, "http")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ftp://x/hidden-word",
        "hidden-word",
        "file:///hidden-word",
        "https://",
        "http://h:port/",
        "http://ö/",
        "http://h/hidden-word\x7f",
        "http://[h/hidden-word",
        "telegram+https://h/hidden-word",
    ],
)
@pytest.mark.parametrize("by_variable", [False, True])
def test_other_addresses_are_refused_and_not_repeated(
    address: str, by_variable: bool, capsys: Output, monkeypatch: Patch
) -> None:
    words, expected = ["history", "--check"], "--notify: got '***', expected an address"
    if by_variable:
        monkeypatch.setenv(NOTIFY_VARIABLE, address or "x")
        assert main(words) == ExitCode.USAGE
        expected = (
            "INFINI_CI_NOTIFY: got '***', expected an address https://HOST/PATH or FORM+https://"
        )
    else:
        with pytest.raises(SystemExit, match=r"^2$"):
            main([*words, "--notify", address])
    error = capsys.readouterr().err
    assert expected in error
    assert "hidden-word" not in error


def test_the_variable_names_the_webhook_of_checks(
    check: Check, receiver: Receiver, monkeypatch: Patch
) -> None:
    monkeypatch.setenv(NOTIFY_VARIABLE, receiver.url)
    assert check.project.ci("history")[0] == ExitCode.PASSED
    assert receiver.bodies == []
    assert check.project.ci("history", "--check")[0] == ExitCode.REGRESSION
    assert len(receiver.bodies) == 1
    assert NOTIFY_VARIABLE not in inherited_environment()


def test_it_needs_a_check(check: Check) -> None:
    code, said = check.project.ci("history", "cpu", "--notify", "https://h/x")
    assert code == ExitCode.USAGE
    assert "--notify: can only be used with --check" in said


# Failed runs


@pytest.fixture
def work(tmp_path: Path, monkeypatch: Patch) -> Workplace:
    found = new_workplace(tmp_path)
    found.write("tests/test_a.py", "def test_a(): assert 1 == 2\ndef test_b(): pass\n")
    monkeypatch.setattr(run_command, "select_engine", lambda _: found.engine)
    for name in ("GITHUB_RUN_ID", "CI_JOB_URL", "BUILDKITE_BUILD_URL", "BUILD_URL"):
        monkeypatch.delenv(name, raising=False)
    return found


def run(work: Workplace, *words: str) -> int:
    source = work.folder / "source"
    return main(["run", "cpu", f"--source={source}", f"--results={work.results}", *words])


def test_a_failed_run_is_sent(
    work: Workplace, receiver: Receiver, capsys: Output, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("CI_JOB_URL", "https://gitlab.example/tiny/-/jobs/7")
    assert run(work, "--notify", receiver.url) == ExitCode.PRODUCT_FAILURE
    [body] = receiver.bodies
    folder = (work.results / "latest").resolve()
    assert (body["kind"], body["headline"]) == ("run", "did not pass on cpu")
    assert (body["run_id"], body["exit_code"]) == (folder.name, 1)
    assert body["results"] == f"{socket.gethostname()}:{folder}"
    assert body["platforms"][0]["verdict"]["product"] == "failed"
    assert [it["test"] for it in body["platforms"][0]["failures"]] == ["tests/test_a.py::test_a"]
    first, reason, failure, of, results, job = body["text"].splitlines()
    assert first == "tiny: did not pass on cpu"
    assert reason.startswith("CPU: failed, harness clean: 1 failed, 0 errors: ")
    assert failure == "- tests/test_a.py::test_a: assert 1 == 2"
    assert of.startswith(f"run {folder.name}: ")
    assert (results, job) == (f"results: {body['results']}", f"job: {body['job']}")
    shown = capsys.readouterr()
    assert "hidden-" not in shown.out + shown.err
    files = [it for it in work.results.rglob("*") if it.is_file()]
    assert not any(b"hidden-" in it.read_bytes() for it in files)


def test_the_body_of_a_run_is_the_documented_one(work: Workplace, receiver: Receiver) -> None:
    page = (REPOSITORY / "docs" / "reference" / "alarms.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` ", page.partition("## Failed runs")[2], re.MULTILINE)
    run(work, "--notify", receiver.url)
    assert listed == [*receiver.bodies[0], *receiver.bodies[0]["platforms"][0]]


def test_a_run_without_its_engine_is_sent(work: Workplace, receiver: Receiver) -> None:
    work.engine.prepare_error = InfrastructureError("no space at https://me:hidden-word@registry")
    assert run(work, "--notify", receiver.url) == ExitCode.INFRASTRUCTURE
    [body] = receiver.bodies
    assert "CPU: not run, harness infrastructure: no space at https://***@" in body["text"]
    assert "hidden-word" not in str(body)


@pytest.mark.parametrize("words", [("--notify",), ()])
def test_the_variable_names_the_webhook_of_runs(
    work: Workplace, receiver: Receiver, monkeypatch: Patch, words: tuple[str, ...]
) -> None:
    """With the option alone: a run of a pull request is not for a chat."""
    monkeypatch.setenv(NOTIFY_VARIABLE, receiver.url)
    assert run(work, *words) == ExitCode.PRODUCT_FAILURE
    assert len(receiver.bodies) == len(words)


def test_a_run_that_passes_or_is_interrupted_is_not_sent(
    work: Workplace, receiver: Receiver
) -> None:
    work.engine.interrupted = True
    assert run(work, "--notify", receiver.url) == ExitCode.INTERRUPTED
    work.new_engine()
    work.write("tests/test_a.py", "def test_a(): pass\n")
    assert run(work, "--notify", receiver.url) == ExitCode.PASSED
    assert receiver.bodies == []


def test_a_webhook_that_refuses_a_run_is_a_warning(
    work: Workplace, receiver: Receiver, capsys: Output
) -> None:
    receiver.answers = [(404, b"no hidden-word here")]
    assert run(work, "--notify", receiver.url) == ExitCode.PRODUCT_FAILURE
    error = capsys.readouterr().err
    assert "\nwarning: --notify: 127.0.0.1: got status 404, expected 200\nCheck the" in error
    assert "hidden-" not in error


def test_a_run_without_an_address_does_not_begin(work: Workplace, capsys: Output) -> None:
    assert run(work, "--notify") == ExitCode.USAGE
    expected = "error: --notify: got no URL, and INFINI_CI_NOTIFY is not set\nSet one of them.\n"
    assert capsys.readouterr().err == expected
    assert work.engine.calls == []
