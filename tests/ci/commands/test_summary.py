"""The summary of results on a forge: rendered as GitHub does, within its limits, and inert."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options

from ci import cli
from ci.analysis.combined import single_run
from ci.analysis.comparison import Comparison
from ci.commands.publishing import publish_run
from ci.errors import ExitCode
from ci.facts.sentences.on_rows import reported
from ci.model.fields import MOST_FAILURES
from ci.model.outcomes import Outcome
from ci.model.results import Failure, Lineage, PlatformResult, RunResult
from ci.model.verdicts import Evidence, Grade, Harness, Product, Verdict
from ci.report.forge import LONGEST_PAGE, Summary, error_commands, marker, page
from tests.cases import narrowed
from tests.ci.published import platform_result
from tests.ci.stored_history import ENVIRONMENT, Project, result

Output = pytest.CaptureFixture[str]

HOSTILE = (
    "t.py::test[<img src=x onerror=alert(1)>|</details>|**b**|`c`|[d](https://e.example)|@all|#1"
    "|www.e.example|a@b.example|<!--|&#64;all]"
)
# Elements that the page itself has. GitHub removes scripts by itself; a hostile name adds nothing.
PLAIN = {
    *("h2", "h3", "h4", "p", "ul", "li", "strong", "code", "pre", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


class Page(HTMLParser):
    """The elements of a page, and its text outside and inside of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.comments: list[str] = []
        self.text = self.code = ""
        self._open: list[str] = []
        self.texts: list[str] = []
        """Texts between two tags or comments, outside of code: a forge looks for links in each."""
        # The sanitizer of a forge keeps comments and details; so the HTML in the page is kept too.
        options = Options.CMARK_OPT_UNSAFE
        self.feed(cmarkgfm.github_flavored_markdown_to_html(text, options))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        self.text += data
        if "code" in self._open:
            self.code += data
        else:
            self.texts.append(data)


def verdict(product: Product, *texts: str) -> Verdict:
    evidence = tuple(Evidence(grade=Grade.FACT, text=text) for text in texts)
    return Verdict(product=product, harness=Harness.CLEAN, evidence=evidence)


def failing(run: RunResult, name: str = HOSTILE, message: str = HOSTILE) -> RunResult:
    """The run, in which 10,000 tests of each platform failed."""
    failures = tuple(
        Failure(
            stage="pytest",
            test=f"{name}{number}"[:4000],
            outcome=Outcome.FAILED,
            message=message[:300],
        )
        for number in range(MOST_FAILURES)
    )

    def failed(it: PlatformResult) -> PlatformResult:
        assert it.pytest
        counts = it.pytest.model_copy(update={"failed": 9_990, "errors": 10, "summary": None})
        update = {
            "pytest": counts,
            "verdict": verdict(Product.FAILED, *[message] * 50),
            "failures": failures,
            "findings": (reported(message),) * 50,
        }
        return it.model_copy(update=update)

    return run.model_copy(update={"platforms": tuple(map(failed, run.platforms))})


def summary(run: RunResult) -> Summary:
    return Summary(results=single_run(run), comparison=f"no run of {HOSTILE}")


def test_a_page_is_rendered_as_what_it_says(published: RunResult) -> None:
    cpu = platform_result("CPU", (10, 0, 0, "1.00s", 5, 5, 10), verdict=verdict(Product.FAILED))
    failure = Failure(stage="pytest", test="t.py::a", outcome=Outcome.FAILED, message="assert 1")
    cpu = (
        failing(published.model_copy(update={"platforms": (cpu,)}))
        .platforms[0]
        .model_copy(
            update={
                "failures": (failure,),
                "findings": (reported("a note"),),
                "verdict": verdict(Product.FAILED),
            }
        )
    )
    run = published.model_copy(update={"platforms": (cpu, *published.platforms)})
    text = page(summary(run))
    shown = Page(text)
    assert text.startswith("<!-- infini-ci: infini-ops -->\n\n## infini-ops: failed on CPU;")
    assert shown.comments[0] == " infini-ci: infini-ops "
    assert shown.elements.count("tr") == 1 + 7
    assert shown.attributes.count(("align", "right")) == 3 * (1 + 7)
    assert "CPU: failed, 10,000 failed tests" in shown.text
    assert "t.py::aassert 1python -m ci rerun 20260101T120000Z-0123abcd-00ff cpu t.py::a" in (
        shown.code.replace("pytest", "")
    )
    assert "and 9,999 more failures" in shown.text
    assert shown.elements.count("details") == 1  # nothing of the platforms that passed
    changes, results = text.index("Not compared"), text.index("### Results")
    assert changes < results < text.index("<details>")


def check_inert(shown: Page) -> None:
    """Check that a page has only elements of its own, and nothing that becomes a link."""
    assert set(shown.elements) <= PLAIN
    assert {*shown.attributes} <= {("align", "right"), ("lang", "sh")}
    links = r"(^|\W)@\w|\w@\w+\.\w|#\d|!\d|://|www\.\w"
    assert [it for it in shown.texts if re.search(links, it)] == []


@pytest.mark.parametrize("marked", [True, False])
def test_hostile_names_are_inert(published: RunResult, *, marked: bool) -> None:
    text = page(summary(failing(published)), marked=marked)
    assert len(text) < LONGEST_PAGE
    shown = Page(text)
    check_inert(shown)
    assert HOSTILE[: HOSTILE.index("|")] in shown.code
    assert "|@all|#1|www.e.example|a@b.example|<!--|&#64;all]" in shown.code
    own = [it for it in shown.comments if it.strip()]
    assert own == ([" infini-ci: infini-ops "] if marked else [])


@pytest.mark.parametrize(
    "character",
    narrowed(["@", "<", "&", "\n", "a", "`", "\\", "|", "\N{SNOWMAN}", "@a", "!1"], kept=4),
)
def test_10_000_failures_fit_into_a_comment(published: RunResult, character: str) -> None:
    run = failing(published, f"t.py::{character * 4000}", character * 4000)
    notes = (character * 1000,) * 200
    changed = Comparison(base="main", head="run", platforms=(), notes=notes)
    for comparison in (changed, "no base"):
        text = page(Summary(results=single_run(run), comparison=comparison))
        assert len(text) < LONGEST_PAGE
        assert set(Page(text).elements) <= PLAIN
        assert all(f"{it.label}: failed, 10,000 failed tests" in text for it in run.platforms)


def test_a_label_of_any_length_fits(published: RunResult) -> None:
    run = failing(published)
    platforms = tuple(it.model_copy(update={"label": "&" * 100_000}) for it in run.platforms)
    text = page(summary(run.model_copy(update={"platforms": platforms})))
    assert len(text) < LONGEST_PAGE


def test_a_page_shows_as_much_as_fits(published: RunResult) -> None:
    short = page(summary(failing(published, "t.py::a", "assert 1")))
    assert short.count("* `t.py::a") == MOST_FAILURES * len(published.platforms)
    long = page(summary(failing(published, "t.py::" + "a" * 400, "b" * 300)))
    assert 0 < long.count("* `t.py::a") < MOST_FAILURES * len(published.platforms)
    assert len(long) > LONGEST_PAGE / 2


def test_a_marker_is_one_comment() -> None:
    assert marker("a--><b") == "<!-- infini-ci: a--__b -->"


# What changed


def branched(folder: Path, name: str = "test_a.py::test_one") -> Project:
    """A main branch with three runs, and a branch on which a test fails."""
    folder.mkdir(exist_ok=True)
    project = Project(folder=folder)
    for _ in range(3):
        project.measure()
    project.branch("feature")
    outcomes = {name: Outcome.FAILED, "test_a.py::test_two": Outcome.SKIPPED}
    failure = Failure(stage="pytest", test=name, outcome=Outcome.FAILED, message="assert <b>")
    commit = project.commit()
    lineage = Lineage(branch="feature", target="main", main_branch="main")
    cpu = result(verdict=verdict(Product.FAILED, "1 test failed"), failures=(failure,))
    project.run(commit, cpu, outcomes=outcomes, lineage=lineage)
    return project


def test_what_changed_since_the_merge_base_comes_first(tmp_path: Path) -> None:
    project = branched(tmp_path)
    code, text = project.ci("report", "--source", str(project.source), "--format", "github")
    assert code == ExitCode.PASSED
    shown = Page(text)
    assert "main → run-003: regression" in shown.text
    assert "1 test newly failing" in shown.text
    assert text.index("newly failing") < text.index("### Results") < text.index("<details>")
    assert "assert <b>" in shown.code
    assert set(shown.elements) <= PLAIN


def test_a_page_names_commands_for_a_reader_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = branched(tmp_path)
    monkeypatch.setenv("INFINI_CI_NOX", "python3 noxfile.py")
    _, text = project.ci("report", "--source", str(project.source), "--format", "github")
    assert "\npython -m ci rerun run-003 cpu test_a.py::test_one\n" in text
    assert str(tmp_path) not in text


def test_hostile_names_are_inert_in_what_changed(tmp_path: Path) -> None:
    project = branched(tmp_path, HOSTILE)
    _, text = project.ci("report", "--source", str(project.source), "--format", "github")
    shown = Page(text)
    assert "Newly failing (1)" in shown.text
    check_inert(shown)


# In a job of a CI


@pytest.fixture
def published_in(tmp_path: Path) -> Callable[..., Path]:
    """Publish the results of a run that failed, with these variables."""

    def publish(name: str = "test_a.py::test_one", **environ: str) -> Path:
        project = branched(tmp_path / "project", name)
        (project.source / "test_a.py").write_text("")
        with project.open() as store:
            publish_run(project.results, project.source, store.load(), environ)
        return project.results

    return publish


def test_a_job_summary_is_appended_to(
    published_in: Callable[..., Path], tmp_path: Path, capsys: Output
) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    published_in(GITHUB_STEP_SUMMARY=str(file))
    text = file.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- infini-ci: tiny -->\n\n## tiny: failed on cpu\n")
    assert "newly failing" in text
    assert capsys.readouterr() == ("", "")


def test_github_gets_a_mark_for_each_failure(
    published_in: Callable[..., Path], capsys: Output
) -> None:
    published_in(GITHUB_ACTIONS="true")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == ("::error file=test_a.py,title=cpu%3A test_a.py%3A%3Atest_one::assert <b>\n")


@pytest.mark.parametrize("file", ["../source/test_a.py", "/etc/passwd", "a" * 300, "b.py"])
def test_only_a_file_of_the_source_is_marked(
    published_in: Callable[..., Path], capsys: Output, file: str
) -> None:
    published_in(f"{file}::test", GITHUB_ACTIONS="true")
    assert capsys.readouterr().err.startswith("::error title=cpu%3A ")


def test_a_summary_that_cannot_be_written_is_one_complaint(
    published_in: Callable[..., Path], tmp_path: Path, capsys: Output
) -> None:
    published_in(GITHUB_STEP_SUMMARY=str(tmp_path / "missing" / "summary.md"))
    said = capsys.readouterr().err
    assert re.fullmatch(r"warning: the CI does not show the results: .*missing.*\n", said)


AGENT = """\
#!/bin/sh
printf '%s\\n' "$*" > {record}
cat >> {record}
exit {code}
"""


def agent(folder: Path, code: int = 0) -> str:
    folder.mkdir()
    program, record = folder / "buildkite-agent", shlex.quote(str(folder / "record"))
    program.write_text(AGENT.format(record=record, code=code))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:/usr/bin:/bin"


def test_buildkite_gets_an_annotation(
    published_in: Callable[..., Path], tmp_path: Path, capsys: Output
) -> None:
    published_in(BUILDKITE="true", PATH=agent(tmp_path / "bin"))
    words, _, text = (tmp_path / "bin" / "record").read_text(encoding="utf-8").partition("\n")
    assert words == "annotate --style error --context infini-ci-tiny-cpu"
    assert text.startswith("## tiny: failed on cpu\n")
    assert capsys.readouterr() == ("", "")


def test_selected_operators_have_an_annotation_of_their_own(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    environment = {**ENVIRONMENT, "selection": {"operators": "add"}}
    project.run(project.commit(), result(environment=environment))
    with project.open() as store:
        run = store.load()
    environ = {"BUILDKITE": "true", "PATH": agent(tmp_path / "bin")}
    publish_run(project.results, project.source, run, environ)
    words, _, text = (tmp_path / "bin" / "record").read_text(encoding="utf-8").partition("\n")
    assert words == "annotate --style success --context infini-ci-tiny-cpu-selected"
    assert text.startswith("## tiny: passed on cpu (selected add)\n")


def test_an_agent_that_fails_is_one_complaint(
    published_in: Callable[..., Path], tmp_path: Path, capsys: Output
) -> None:
    published_in(BUILDKITE="true", PATH=agent(tmp_path / "bin", code=1))
    said = capsys.readouterr().err
    assert re.fullmatch(r"warning: the CI does not show .* failed with exit code 1\n", said)


def test_outside_of_a_ci_nothing_is_shown(
    published_in: Callable[..., Path], capsys: Output
) -> None:
    published_in(PATH="/nowhere", BUILDKITE="true")
    assert capsys.readouterr() == ("", "")


# Workflow commands


def test_a_workflow_command_has_one_line(published: RunResult) -> None:
    lines = [*error_commands(failing(published, "a.py::b\n::warning::", "c\r\n::d%"), bool)]
    assert len(lines) == 10
    name = "a.py%3A%3Ab%0A%3A%3Awarning%3A%3A0"
    assert lines[0] == f"::error file=a.py,title=NVIDIA%3A {name}::c %0A::d%25"
    assert [line.partition("title=")[2].partition("%")[0] for line in lines[:6]] == [
        it.label for it in published.platforms
    ]


def test_github_obeys_no_line_of_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    project = branched(tmp_path / "project")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    words = ["report", "--check", "--results", str(project.results)]
    assert cli.main(words) == ExitCode.PRODUCT_FAILURE
    said = capfd.readouterr()
    stop, resume, error, again, end = said.err.splitlines()
    token = stop.removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert error.startswith("::error title=cpu%3A test_a.py")
    assert [resume, again, end] == [f"::{token}::", stop, f"::{token}::"]
    assert "::" not in re.sub(r"\w::\w", "", said.out)
    cli.main(words)
    assert token not in capfd.readouterr().err


def test_a_platform_without_failed_tests_is_marked_with_its_verdict(published: RunResult) -> None:
    lost = verdict(Product.INCOMPLETE, "the container, it ended\n")
    cpu = published.platforms[0].model_copy(update={"verdict": lost})
    run = published.model_copy(update={"platforms": (cpu, *published.platforms[1:])})
    [line] = error_commands(run, bool)
    assert line == "::error title=NVIDIA%3A incomplete::the container, it ended%0A"
