"""Draws mutants blindly: universalmutator generates them, and a seed chooses among them.

The universe is every mutant of the sources of a layer, as universalmutator generates them with its
rules for the language. Two kinds are left out by rule. The first changes no code: comments,
docstrings, assertions, preprocessor lines, and changes within quotation marks only. The second
cannot compile, for which the text of the line is enough: see `_may_compile`.

A digest of the seed and of the mutant itself orders the universe. So a change of other lines does
not change the order, and a mutant whose line is gone is replaced by the next one of the order. Each
layer takes its first mutants. A mutant is passed over if it does not build, or if the built library
stays the same to the byte. A line gets one mutant at most.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tools.mutants.drawn import Candidate, Draw

UNIVERSALMUTATOR = "1.14.1"
RULES = {  # by language, which is that of what a template generates
    ".py": ["universal.rules", "python.rules"],
    "": ["universal.rules", "c_like.rules", "cpp.rules"],  # C++
}
# Names that the rules write.
NAMES = (
    *("all_of", "any_of", "none_of", "begin", "end", "min", "max", "min_element", "max_element"),
    *("and", "break", "continue", "if", "not", "or", "pass", "return", "None", "True", "False"),
)
# Kernels of src/cpu that several operators share.
SHARED_KERNELS = (
    "attention",
    "cache",
    "flash_attention",
    "gated",
    "norm",
    "product",
    "quantize",
    "softmax",
)
# Modules of the suite that make operands and examples: another operand is no fault.
OPERANDS = (
    "attention_examples",
    "flash_examples",
    "moe_examples",
    "native_caches",
    "native_examples",
    "native_operands",
    "programs",
    "quantization_examples",
    "routing_examples",
    "sampling_examples",
    "toy_device",
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"' r"|'(?:[^'\\]|\\.)*'")
_COMMENTS = {".py": re.compile("#.*"), "": re.compile("//.*")}
_NAME = re.compile(r"[^\W\d]\w*")
_SHAPES = tuple(
    re.compile(pattern)
    for pattern in (
        r"template <(?!=)|(?<=\w)<(?!=)",
        r"(?<=[^\s-])>(?!=)",
        r"(?<=[\w>])[*&]+(?=[\s,)>])",
        r"(?<=[\s(])[%/](?=[\w(])",
    )
)
_LOOP = re.compile(r"\s*(}? ?else )?(for|while|switch|do|case|default)\b")
_WITHOUT_CODE = re.compile(r"\s*(//|#|static_assert|TORCH_)")

Check = Callable[[Candidate], str | None]
"""Returns why a candidate is no mutant, or None."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Sources by pattern, and how many mutants they get."""

    name: str
    sources: tuple[str, ...]
    without: tuple[str, ...] = ()
    count: int

    def files(self, root: Path) -> Iterator[str]:
        """Yield the sources by path relative to the root."""
        for path in sorted({path for each in self.sources for path in root.glob(each)}):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not any(fnmatch(name, each) for each in self.without):
                yield name


def layers(root: Path) -> tuple[Layer, ...]:
    """Return the layers: each hand-written operator is one."""
    operators = sorted(path.stem for path in (root / "src/base").glob("*.h"))
    kernels = {name: (f"src/cpu/{name}.cc", f"src/cpu/{name}_kernels.h") for name in operators}
    shared = {name: (f"src/cpu/{name}.*", f"src/cpu/{name}_*") for name in SHARED_KERNELS}
    own = [file for files in (*kernels.values(), *shared.values()) for file in files]
    operands = tuple(f"tests/ops/{name}.py" for name in OPERANDS)
    return (
        Layer(
            name="templates",
            sources=("codegen/templates/*.j2", "codegen/templates/torch/*"),
            count=2,
        ),
        Layer(name="generator", sources=("codegen/*.py",), count=2),
        Layer(name="bindings", sources=("src/bindings/*", "src/infini/ops/*.py"), count=4),
        Layer(name="core", sources=("src/core/*", "src/include/infini/ops/*"), count=4),
        Layer(name="torch", sources=("src/torch/*",), count=3),
        *(Layer(name=name, sources=files, count=1) for name, files in kernels.items()),
        *(Layer(name=name, sources=files, count=2) for name, files in shared.items()),
        Layer(name="cpu", sources=("src/cpu/*",), without=tuple(own), count=2),
        Layer(
            name="harness",
            sources=("tests/ops/*.py",),
            without=("tests/ops/test_*", *operands),
            count=2,
        ),
    )


def draw(root: Path, seed: int, recorded: Draw | None, check: Check) -> Draw:
    """Draw the mutants of all layers.

    Recorded ones of the same draw are not checked again. They stay if their lines are still there.
    """
    known: dict[tuple[str, str, str], Candidate] = {}
    if recorded and (recorded.seed, recorded.universalmutator) == (seed, UNIVERSALMUTATOR):
        every = (*recorded.mutants, *recorded.passed_over)
        known = {each.key: each for each in every if each.is_in(root)}
    mutants: list[Candidate] = []
    passed_over: list[Candidate] = []
    for layer in layers(root):
        own = [it for it in known.values() if it.layer == layer.name]
        kept = [it for it in own if it.rejected is None][: layer.count]
        passed_over += [it for it in own if it.rejected is not None]
        for candidate in in_order(universe(root, layer), seed):
            if len(kept) == layer.count:
                break
            is_taken = any((it.path, it.old) == (candidate.path, candidate.old) for it in kept)
            if candidate.key in known or is_taken or not _is_valid(root, candidate):
                continue
            reason = check(candidate)
            if reason is None:
                kept.append(candidate)
            else:
                passed_over.append(candidate.model_copy(update={"rejected": reason}))
        mutants += kept
    return Draw(
        universalmutator=UNIVERSALMUTATOR,
        seed=seed,
        mutants=tuple(mutants),
        passed_over=tuple(passed_over),
    )


def in_order(candidates: Iterable[Candidate], seed: int) -> list[Candidate]:
    """Return the candidates in the order of the seed."""

    def digest(candidate: Candidate) -> bytes:
        return hashlib.sha256("\0".join([str(seed), *candidate.key]).encode()).digest()

    return sorted(candidates, key=lambda each: (digest(each), each.line))


def universe(root: Path, layer: Layer) -> Iterator[Candidate]:
    """Yield all mutants of a layer that change code."""
    for path in layer.files(root):
        text = (root / path).read_text(encoding="utf-8")
        language = ".py" if ".py" in path else ""
        lines = text.splitlines()
        names = {*_NAME.findall(text), *NAMES}
        skipped = _without_code(text) if path.endswith(".py") else set()
        # Comments are blank for universalmutator, too: it takes "ops/*.h" for the start of one.
        source = [
            "" if number in skipped or _WITHOUT_CODE.match(line) else line
            for number, line in enumerate(lines, 1)
        ]
        for number, new in _generate(source, RULES[language]):
            old = lines[number - 1]
            if _code(old, language) == _code(new, language):
                continue
            if new.endswith(("break;", "continue;")) and not _is_in_loop(lines, number):
                continue
            if _may_compile(_bare(old, language), _bare(new, language), names):
                yield Candidate(layer=layer.name, path=path, line=number, old=old, new=new)


def _without_code(text: str) -> set[int]:
    """Return the numbers of lines of Python that are docstrings or assertions."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Assert):
            assert isinstance(node, ast.stmt)
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _is_valid(root: Path, candidate: Candidate) -> bool:
    """Whether it is Python, if its source is: the build does not read all Python files."""
    if not candidate.path.endswith(".py"):
        return True
    try:
        ast.parse(candidate.plant(root)[candidate.path])
    except SyntaxError:
        return False
    return True


def _generate(lines: Sequence[str], rules: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the numbers and the new texts of lines that universalmutator changes."""
    from universalmutator import mutator

    with redirect_stdout(io.StringIO()):  # it prints its rules
        source = [f"{line}\n" for line in lines]
        mutants = mutator.mutants_regexp(source, rules, ignorePatterns=[], ignoreStringOnly=True)
    for number, new, *_ in mutants:
        yield number, new.removesuffix("\n")


def _code(line: str, language: str) -> str:
    """Return a line without its texts, comment and spaces."""
    return "".join(_bare(line, language).split())


def _bare(line: str, language: str) -> str:
    return _COMMENTS[language].sub("", _QUOTED.sub('""', line)).rstrip()


def _may_compile(old: str, new: str, names: set[str]) -> bool:
    """Return False for what no compiler takes: half of the mutants, each of which costs a build.

    These are unbalanced brackets, a statement inside of another one, one without its semicolon,
    names that the file does not have, and operators in the place of what clang-format shows to be
    a part of a type: only a type has `<`, `*` and `&` right behind it. No operand has `%` or `/`
    right before it.
    """
    if any(_depth(old, pair) != _depth(new, pair) for pair in ("()", "[]", "{}")):
        return False
    if new.startswith(old) and new.endswith(("break;", "continue;")) and old[-1] not in ";{}:)":
        return False
    if old.endswith(";") and not new.endswith((";", "*/")):
        return False
    if any(len(shape.findall(old)) != len(shape.findall(new)) for shape in _SHAPES):
        return False
    return names.issuperset(_NAME.findall(new))


def _is_in_loop(lines: Sequence[str], number: int) -> bool:
    """Whether a loop or a switch is among the lines around, which are indented less."""
    line = lines[number - 1]
    indent = len(line) - len(line.lstrip())
    for above in reversed(lines[: number - 1]):
        margin = len(above) - len(above.lstrip())
        if above.strip() and margin < indent:
            if _LOOP.match(above):
                return True
            indent = margin
    return _LOOP.match(line) is not None


def _depth(line: str, pair: str) -> int:
    return line.count(pair[0]) - line.count(pair[1])
