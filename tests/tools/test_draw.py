"""The mutants that no person chose: which ones are drawn, and what is recorded of them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.errors import ConfigError
from tools.mutants import draw as drawing
from tools.mutants.draw import UNIVERSALMUTATOR, Layer, draw, in_order, layers, universe
from tools.mutants.drawn import Candidate, Draw, load_draw
from tools.mutants.faults import PlantingError
from tools.mutants.plan import ROOT

CPP = """\
// A comment with 1 < 2.
static_assert(sizeof(int) == 4);
  if (a < b) {  // 3
    throw Error("a + b");
"""
PYTHON = '''\
"""One and two."""
def f(x):
    """Three and four."""
    assert x > 1
    return x + "a and b"
'''
LAYER = Layer(name="core", sources=("src/*",), count=2)


def generate(line: str) -> list[str]:
    """Replace universalmutator, which the environment of the tests lacks."""
    return [line.replace(*pair) for pair in (("<", ">"), ("a", "b"), (" and ", " or ")) if line]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with sources of both languages, and a generator of mutants."""

    def all_of(lines: list[str], _rules: list[str]) -> list[tuple[int, str]]:
        return [(number, new) for number, line in enumerate(lines, 1) for new in generate(line)]

    monkeypatch.setattr(drawing, "_generate", all_of)
    monkeypatch.setattr(drawing, "layers", lambda _: (LAYER,))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.cc").write_text(CPP)
    return tmp_path


class TestRecord:
    """``drawn.yaml``, as it is."""

    def test_every_mutant_fits_the_sources(self) -> None:
        for mutant in load_draw().mutants:
            assert mutant.plant(ROOT) != {mutant.path: (ROOT / mutant.path).read_text()}

    def test_every_layer_has_its_mutants(self) -> None:
        names = [mutant.layer for mutant in load_draw().mutants]
        wanted = {layer.name: layer.count for layer in layers(ROOT)}
        assert {name: names.count(name) for name in names} == wanted

    def test_few_are_equivalent_and_each_says_why(self) -> None:
        arguments = [it.equivalent for it in load_draw().mutants if it.equivalent is not None]
        assert len(arguments) <= 5
        assert all(len(each.split()) > 5 for each in arguments)

    def test_it_names_the_version_that_the_session_installs(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        assert project["dependency-groups"]["draw"] == [f"universalmutator=={UNIVERSALMUTATOR}"]
        assert load_draw().universalmutator == UNIVERSALMUTATOR

    def test_it_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        path = tmp_path / "drawn.yaml"
        load_draw().write(path)
        assert load_draw(path) == load_draw()

    def test_an_unknown_key_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "drawn.yaml"
        path.write_text("universalmutator: '1'\nseed: 1\nmutant: []\n")
        with pytest.raises(ConfigError, match=r"drawn\.yaml:3: .*unknown key"):
            load_draw(path)


class TestPlanting:
    LINE = Candidate(layer="core", path="src/a.cc", line=2, old="x", new="y\n  z")

    def test_the_line_moves_with_its_file(self) -> None:
        assert self.LINE.planted("x\nx\n") == "x\ny\n  z\n"
        assert self.LINE.planted("x\na\nb") == "y\n  z\na\nb"

    @pytest.mark.parametrize("text", ["a\nb\n", "x\na\nx\n"])
    def test_a_line_that_is_gone_or_not_clear_is_refused(self, text: str) -> None:
        with pytest.raises(PlantingError, match=r"(?s)a\.cc:2: found this line [02] times.*--draw"):
            self.LINE.planted(text)


class TestUniverse:
    def test_cpp_without_comments_assertions_and_texts(self, tree: Path) -> None:
        found = [(it.line, it.new) for it in universe(tree, LAYER)]
        assert found == [(3, "  if (a > b) {  // 3"), (3, "  if (b < b) {  // 3")]

    def test_python_without_docstrings_assertions_and_texts(self, tree: Path) -> None:
        (tree / "src/a.cc").unlink()
        (tree / "src/a.py").write_text(PYTHON)
        assert [(it.line, it.new) for it in universe(tree, LAYER)] == []
        (tree / "src/a.py").write_text(PYTHON.replace('"a and b"', "a and b"))
        assert [(it.line, it.new) for it in universe(tree, LAYER)] == [(5, "    return x + a or b")]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("if (a) {", "if (a {"),
            ("f(a,", "f(a,\n  break;"),
            ("return a;", "return a"),
            ("a += 8;", "aa += 8;"),
            ("std::vector<a> b;", "std::vector>a> b;"),
            ("std::vector<a> b;", "std::vector<a!= b;"),
            ("template <a>", "template !=a>"),
            ("a* b;", "a/ b;"),
            ("a = *b;", "a = %b;"),
        ],
    )
    def test_what_no_compiler_takes_is_left_out(self, old: str, new: str) -> None:
        names = {"a", "b", "f", "if", "return", "std", "template", "vector", "break"}
        assert not drawing._may_compile(old, new, names)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("if (a < b) {", "if (0==1) {"),
            ("a = b;", "/*a = b;*/"),
            ("a = b;", "a = b;\nbreak;"),
            ("a = *b + 1;", "a = *b % 1;"),
            ("a = b * a;", "a = b / a;"),
            ("a = b > 0;", "a = b <= 0;"),
        ],
    )
    def test_what_may_compile_is_not(self, old: str, new: str) -> None:
        assert drawing._may_compile(old, new, {"a", "b", "if", "break"})

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            (["while (a) {", "  b();"], True),
            (["while (a) {", "  if (b) {", "    c();"], True),
            (["while (a) {", "}", "b();"], False),
            (["void f() {", "  while (a) {", "    b();", "  }", "  c();"], False),
        ],
    )
    def test_break_needs_a_loop(self, lines: list[str], expected: bool) -> None:
        assert drawing._is_in_loop(lines, len(lines)) is expected

    def test_every_layer_of_the_library_has_sources(self) -> None:
        for layer in layers(ROOT):
            assert [*layer.files(ROOT)], layer.name

    def test_no_source_of_the_cpu_is_left_out_or_in_two_layers(self) -> None:
        found = [path for layer in layers(ROOT) for path in layer.files(ROOT)]
        assert len({*found}) == len(found)
        sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src/cpu").iterdir()}
        assert sources <= {*found}


class TestDraw:
    def drawn(
        self,
        tree: Path,
        recorded: Draw | None = None,
        check: Callable[[Candidate], str | None] = lambda _: None,
        seed: int = 1,
    ) -> Draw:
        return draw(tree, seed, recorded, check)

    def lines(self, tree: Path, count: int) -> None:
        text = "".join(f"  if (a{number} < b) {{\n" for number in range(count))
        (tree / "src/a.cc").write_text(text)

    def test_a_seed_gives_one_draw(self, tree: Path) -> None:
        self.lines(tree, 20)
        first, again, other = self.drawn(tree), self.drawn(tree), self.drawn(tree, seed=2)
        assert first == again
        assert first.mutants != other.mutants

    def test_a_line_gets_one_mutant(self, tree: Path) -> None:
        assert len(self.drawn(tree).mutants) == 1

    def test_the_next_one_follows_what_does_not_build(self, tree: Path) -> None:
        self.lines(tree, 20)
        order = in_order(universe(tree, LAYER), 1)
        done = self.drawn(tree, check=lambda it: "does not build" if it == order[0] else None)
        assert done.passed_over == (order[0].model_copy(update={"rejected": "does not build"}),)
        assert done.mutants[0] == order[1]

    def test_a_mutant_whose_line_is_gone_is_replaced_and_the_others_stay(self, tree: Path) -> None:
        self.lines(tree, 20)
        first = self.drawn(tree)
        gone, kept = first.mutants
        source = tree / "src/a.cc"
        source.write_text("// New.\n" + source.read_text().replace(gone.old, "  if (new < b) {"))
        asked: list[Candidate] = []
        second = self.drawn(tree, first, check=lambda it: asked.append(it))
        assert kept.key in [it.key for it in second.mutants]
        assert gone.key not in [it.key for it in second.mutants]
        assert len(second.mutants) == 2
        assert len(asked) == 1

    def test_what_was_passed_over_is_not_tried_again(self, tree: Path) -> None:
        self.lines(tree, 20)
        order = in_order(universe(tree, LAYER), 1)
        first = self.drawn(tree, check=lambda it: "does not build" if it == order[0] else None)
        gone = first.mutants[0]
        source = tree / "src/a.cc"
        source.write_text(source.read_text().replace(f"{gone.old}\n", ""))
        second = self.drawn(tree, first)
        assert second.passed_over == first.passed_over
        assert order[0].key not in [it.key for it in second.mutants]

    def test_a_layer_that_has_too_many_gets_no_other(self, tree: Path) -> None:
        self.lines(tree, 20)
        first = self.drawn(tree)
        more = self.drawn(tree, seed=2).model_copy(update={"seed": 1})
        recorded = first.model_copy(update={"mutants": (*first.mutants, *more.mutants)})
        checked: list[Candidate] = []
        assert self.drawn(tree, recorded, check=checked.append).mutants == first.mutants
        assert not checked

    def test_arguments_for_equivalence_stay_with_their_mutants(self, tree: Path) -> None:
        self.lines(tree, 20)
        first = self.drawn(tree)
        argued = first.mutants[0].model_copy(update={"equivalent": "it only costs time"})
        recorded = first.model_copy(update={"mutants": (argued, first.mutants[1])})
        assert self.drawn(tree, recorded).mutants == recorded.mutants
