"""Finds the definitions of the member functions of one class in C++ source.

This is not a C++ parser. It locates definitions for messages, and for a verdict where no compiler
can give one. It reads the text before each brace, and ignores comments, strings and function
bodies. It reads all branches of `#if`, except `#if 0`. The time is linear in the length of the
source.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<directive>^[ \t]*(?:\#|%:)(?:/\*.*?(?:\*/|\Z)|//[^\n]*|[^\n])*)
    | [^\S\n]+ | \n | //[^\n]* | /\*.*?(?:\*/|\Z)
    | (?P<literal>
        (?:u8|[uUL])?R"(?P<delimiter>[^\s()\\"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)
        | (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"? | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?
        | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
    )
    | (?P<word>[^\W\d]\w*)
    | (?P<mark>::|->|&&|<%|%>|<:(?!:)|:>|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DIGRAPHS = {"<%": "{", "%>": "}", "<:": "[", ":>": "]"}
_SPLICE = "\\\n"
_LINE_END = re.compile(r"\\?\n")
_DIRECTIVE = re.compile(r"\s*(?:#|%:)\s*(?P<name>\w*)\s*(?P<rest>.*)", re.DOTALL)
_MACRO = re.compile(r"(?P<name>\w+)\([^)]*\)(?P<body>.*)", re.DOTALL)
# Macros of ATen/TensorMeta.h for the member functions of structured kernels, and these functions.
_STRUCTURED = "structured_"
_STRUCTURED_MACROS = {
    "TORCH_IMPL_FUNC": "impl",
    "TORCH_META_FUNC": "meta",
    "TORCH_PRECOMPUTE_META_FUNC": "meta",
}
_OPENING, _CLOSING = "([{", ")]}"
_DEEPEST = 64  # namespaces; of deeper ones, only the innermost are used

Words = tuple[str, ...]  # the texts of tokens
Place = tuple[int, int]  # line and column


class Token(NamedTuple):
    """A token of C++ source; blanks and comments are not tokens."""

    kind: str  # directive, literal, word or mark
    text: str
    place: Place


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A definition of a member function; of a structured kernel, its name includes the class."""

    path: Path
    line: int
    start: Place  # of its first token
    body: Place  # of the brace of its body
    namespace: Words  # enclosing namespaces, then qualifiers of the name
    name: str
    head: Words  # what precedes the name: specifiers, attributes, macros and the return type
    parameters: tuple[Words, ...]
    tail: Words  # what follows the parameters
    is_conditional: bool  # inside a branch of `#if`


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A possible macro call outside of functions: `DEFINE_KERNEL(abs)`."""

    path: Path
    line: int
    macro: str
    arguments: frozenset[str]  # the words in its arguments


@dataclass(frozen=True, kw_only=True)
class ClassSource:
    """The parts of one file that concern the class."""

    path: Path
    text: str
    definitions: list[Definition] = field(default_factory=list)
    invocations: list[Invocation] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=set)  # other names of namespaces
    # Bodies of function-like macros.
    macros: dict[str, Words] = field(default_factory=dict)


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of C++ source. Characters that start no token become single marks."""
    starts, removed = [0], 0  # of the lines, in the text without splices
    for end in _LINE_END.finditer(text):
        removed += len(_SPLICE) * (end[0] == _SPLICE)
        starts.append(end.end() - removed)
    for match in _TOKEN.finditer(text.replace(_SPLICE, "")):
        if match.lastgroup is not None:
            line = bisect.bisect_right(starts, match.start())
            place = (line, match.start() - starts[line - 1] + 1)
            yield Token(match.lastgroup, _DIGRAPHS.get(match[0], match[0]), place)


def words(text: str) -> Words:
    return tuple(token.text for token in tokenize(text))


def scan(path: Path, text: str, class_name: str) -> ClassSource:
    """Find the definitions and macro calls of the class in ``text``, the content of ``path``."""
    return _Scanner(ClassSource(path=path, text=text), class_name).scan()


class _Conditional(NamedTuple):
    """State of the scanner at an open `#if`, restored at `#else`."""

    depth: int
    parentheses: int
    scope: Words
    is_skipping: bool
    statement: list[Token]
    length: int  # length of the statement at the `#if`


class _Scanner:
    def __init__(self, source: ClassSource, class_name: str) -> None:
        self._source = source
        self._class_names = {class_name}
        self._conditionals: list[_Conditional] = []
        self._is_skipping = False
        self._depth = 0  # open braces, without those of namespaces
        self._parentheses = 0
        self._scope: Words = ()  # the innermost namespaces, as written: `a::b`, or "" for extern
        self._next_statement()

    def _next_statement(self) -> None:
        self._statement: list[Token] = []
        self._parentheses = 0

    def scan(self) -> ClassSource:
        for token in tokenize(self._source.text):
            if token.kind == "directive":
                self._directive(token)
            elif self._is_skipping:
                continue
            elif self._depth:
                self._depth += (token.text == "{") - (token.text == "}")
                if self._depth == 0 and self._parentheses == 0:
                    self._next_statement()
            else:
                self._scan_outside_braces(token)
        self._find_invocations()
        return self._source

    def _scan_outside_braces(self, token: Token) -> None:
        if token.text == "{" and self._parentheses:  # a default argument
            self._depth = 1
        elif token.text == "{":
            self._open_brace(token)
        elif token.text == "}":
            self._find_invocations()  # macro calls without a semicolon
            self._scope = self._scope[:-1]
            self._next_statement()
        elif token.text == ";":
            self._alias(tuple(each.text for each in self._statement))
            self._find_invocations()
            self._next_statement()
        else:
            change = (token.text == "(") - (token.text == ")")
            self._parentheses = max(0, self._parentheses + change)
            self._statement.append(token)

    def _directive(self, token: Token) -> None:
        match = _DIRECTIVE.match(token.text)
        assert match is not None
        name, rest = match["name"], match["rest"]
        is_branch = name in ("if", "ifdef", "ifndef", "endif") or name.startswith("el")
        if is_branch and self._statement and not self._depth and not self._is_skipping:
            if self._parentheses == 0 and self._find_invocations():
                self._next_statement()  # macro calls without a semicolon
            else:
                self._statement.append(token)
        if name in ("if", "ifdef", "ifndef"):
            state = (self._depth, self._parentheses, self._scope, self._is_skipping)
            self._conditionals.append(_Conditional(*state, self._statement, len(self._statement)))
            self._is_skipping |= name == "if" and rest.strip() in ("0", "false")
        elif name.startswith("el") and self._conditionals:
            self._restore(self._conditionals[-1])
        elif name == "endif" and self._conditionals:
            self._is_skipping = self._conditionals.pop().is_skipping
        elif name == "define" and not self._is_skipping and (macro := _MACRO.match(rest)):
            self._source.macros[macro["name"]] = words(macro["body"])

    def _restore(self, state: _Conditional) -> None:
        if self._statement is state.statement:
            del self._statement[state.length :]
        else:
            self._next_statement()
        self._depth, self._parentheses, self._scope, self._is_skipping = state[:4]

    def _alias(self, texts: Words) -> None:
        """Record other names of the class, which start definitions, and of namespaces."""
        match texts:
            case ("using", name, "=", *_, last) | ("typedef", *_, last, name):
                if last in self._class_names:
                    self._class_names.add(name)
            case ("namespace", name, "=", *_):
                self._source.namespaces.add(name)

    def _open_brace(self, brace: Token) -> None:
        texts = [token.text for token in self._statement]
        if "namespace" in texts:
            following = texts[texts.index("namespace") + 1 :]
            name = itertools.takewhile(lambda text: text == "::" or text.isidentifier(), following)
            self._scope = (*self._scope[1 - _DEEPEST :], "".join(name))
        elif texts[-2:-1] == ["extern"] and self._statement[-1].kind == "literal":
            self._scope = (*self._scope[1 - _DEEPEST :], "")
        else:
            self._find_definition(brace)
            self._depth = 1
            return
        self._next_statement()

    def _find_invocations(self) -> bool:
        """Record possible macro calls. Returns True if the statement contains nothing else."""
        statement, position = self._statement, 0
        while position < len(statement):
            macro, *opening = statement[position : position + 2]
            if macro.kind != "word" or not opening or opening[0].text != "(":
                return False
            end = _closing(statement, position + 1)
            arguments = (each.text for each in statement[position + 2 : end] if each.kind == "word")
            self._source.invocations.append(
                Invocation(
                    path=self._source.path,
                    line=macro.place[0],
                    macro=macro.text,
                    arguments=frozenset(arguments),
                )
            )
            position = end + 1
        return True

    def _find_definition(self, brace: Token) -> None:
        """Look for `returns Class::name(parameters)` in the statement before a brace."""
        self._expand_structured()
        tokens = self._statement
        position = 0
        while position + 3 < len(tokens):
            owner, separator, name, opening = tokens[position : position + 4]
            is_member = (separator.text, name.kind, opening.text) == ("::", "word", "(")
            if is_member and (
                owner.text in self._class_names or owner.text.startswith(_STRUCTURED)
            ):
                self._add_definition(position, brace)
                return
            if owner.text == "(":
                position = _closing(tokens, position)
            position += 1

    def _expand_structured(self) -> None:
        """Expand `TORCH_IMPL_FUNC(name)` to `void structured_name::impl`."""
        match self._statement:
            case [macro, Token(text="("), name, Token(text=")"), *rest]:
                if member := _STRUCTURED_MACROS.get(macro.text):
                    owner = f"{_STRUCTURED}{name.text}"
                    is_precomputed = "PRECOMPUTE" in macro.text
                    returns = (owner, "::", "meta_return_ty") if is_precomputed else ("void",)
                    spelled = (*returns, owner, "::", member)
                    expanded = [Token("word", text, macro.place) for text in spelled]
                    self._statement = [*expanded, *rest]

    def _add_definition(self, position: int, brace: Token) -> None:
        """Record the definition in which the name of the class is at this position."""
        self._find_invocations()  # a macro call without a semicolon can precede it
        tokens = self._statement
        texts = tuple(token.text for token in tokens)
        closing = _closing(tokens, position + 3)
        start = position
        while start >= 2 and texts[start - 1] == "::" and tokens[start - 2].kind == "word":
            start -= 2
        names = (*"::".join(self._scope).split("::"), *texts[start:position:2])
        owner, member = texts[position], texts[position + 2]
        if start and texts[start - 1] == "::":
            start -= 1
        self._source.definitions.append(
            Definition(
                path=self._source.path,
                line=tokens[position + 2].place[0],
                start=tokens[0].place,
                body=brace.place,
                namespace=tuple(filter(None, names)),
                name=f"{owner}::{member}" if owner.startswith(_STRUCTURED) else member,
                head=texts[:start],
                parameters=_parameters(tokens[position + 4 : closing]),
                tail=texts[closing + 1 :],
                is_conditional=bool(self._conditionals),
            )
        )


def _closing(tokens: Sequence[Token], opening: int) -> int:
    """The position of the bracket that closes the one at `opening`, or the end."""
    depth = 0
    for position in range(opening, len(tokens)):
        if tokens[position].text in _OPENING:
            depth += 1
        elif tokens[position].text in _CLOSING:
            depth -= 1
            if depth == 0:
                return position
    return len(tokens)


def _parameters(tokens: Sequence[Token]) -> tuple[Words, ...]:
    """The parameters, split at commas, without default arguments and attributes."""
    parameters: list[list[str]] = [[]]
    depth = position = 0
    is_default = False
    while position < len(tokens):
        token = tokens[position]
        if token.text == "[" and not parameters[-1]:  # an attribute
            position = _closing(tokens, position) + 1
            continue
        position += 1
        if token.text == "," and depth == 0:
            parameters.append([])
            is_default = False
            continue
        is_default |= token.text == "=" and depth == 0
        if token.kind == "mark":
            depth += token.text in _OPENING or (token.text == "<" and not is_default)
            depth -= token.text in _CLOSING or (token.text == ">" and not is_default)
        if not is_default:
            parameters[-1].append(token.text)
    if parameters in ([[]], [["void"]]):
        return ()
    return tuple(tuple(parameter) for parameter in parameters)
