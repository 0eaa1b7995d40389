"""Finds the definitions of the member functions of one class in C++ source.

This is not a C++ parser. It skips everything in braces and reads the text before each brace. It
ignores comments, strings and function bodies. It reads all branches of `#if`, except `#if 0`. Code
that a macro hides is reported as unclear instead of guessed. The time is linear in the length of
the source: 2 MB take about a second.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<directive>^[ \t]*\#(?:/\*.*?(?:\*/|\Z)|//(?:[^\n\\]|\\.)*|\\.|[^\n\\])*)
    | [^\S\n]+ | \n | //(?:[^\n\\]|\\.)* | /\*.*?(?:\*/|\Z)
    | (?P<literal>
        (?:u8|[uUL])?R"(?P<delimiter>[^\s()\\"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)
        | (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"? | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?
        | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
    )
    | (?P<word>[^\W\d]\w*)
    | (?P<mark>::|->|&&|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DIRECTIVE = re.compile(r"\s*#\s*(?P<name>\w*)\s*(?P<rest>.*)", re.DOTALL)
_DEFINE = re.compile(r"(?P<name>\w+)(?P<parameters>\([^)]*\))?(?P<body>.*)", re.DOTALL)
_SPECIFIERS = ("static", "inline", "extern", "constexpr", "virtual", "friend")
_OPENING, _CLOSING = "([{", ")]}"
_DEEPEST = 64  # namespaces; of deeper ones, only the innermost are used
_MACRO = re.compile(r"[A-Z_][A-Z0-9_]+")


class Token(NamedTuple):
    """A token of C++ source; blanks and comments are not tokens."""

    kind: str  # directive, literal, word or mark
    text: str
    line: int


Words = tuple[str, ...]  # the texts of tokens
_Scope = tuple[str, "_Scope | None"]  # the innermost namespace, and its enclosing scope


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A definition of a member function."""

    path: Path
    line: int
    namespace: Words  # enclosing namespaces, then qualifiers of the name
    name: str
    returns: Words
    parameters: tuple[Words, ...]
    is_conditional: bool  # inside a branch of `#if`
    is_clear: bool  # no `#if` between its first token and its body


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

    definitions: list[Definition] = field(default_factory=list)
    invocations: list[Invocation] = field(default_factory=list)
    # Aliases of types, from `using`, `typedef` or `#define`.
    aliases: dict[str, Words] = field(default_factory=dict)
    # Bodies of function-like macros.
    macros: dict[str, Words] = field(default_factory=dict)


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of C++ source. Characters that start no token become single marks."""
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup is not None:
            yield Token(match.lastgroup, match[0], line)
        line += match[0].count("\n")


def words(text: str) -> Words:
    return tuple(token.text for token in tokenize(text))


def is_macro_name(word: str) -> bool:
    """True if the word is spelled like a macro, in capitals."""
    return _MACRO.fullmatch(word) is not None and word.upper() != word.lower()


def scan(path: Path, text: str, class_name: str) -> ClassSource:
    """Find the definitions and macro calls of the class in ``text``, the content of ``path``."""
    return _Scanner(path, class_name).scan(text)


class _Conditional(NamedTuple):
    """State of the scanner at an open `#if`, restored at `#else`."""

    depth: int
    parentheses: int
    scope: _Scope | None
    is_skipping: bool
    statement: list[Token]
    length: int  # length of the statement at the `#if`


class _Scanner:
    def __init__(self, path: Path, class_name: str) -> None:
        self._path = path
        self._class_names = {class_name}
        self._source = ClassSource()
        self._conditionals: list[_Conditional] = []
        self._is_skipping = False
        self._depth = 0  # open braces, without those of namespaces
        self._parentheses = 0
        self._scope: _Scope | None = None
        self._next_statement()

    def _next_statement(self) -> None:
        self._statement: list[Token] = []
        self._parentheses = 0
        self._is_clear = True

    def scan(self, text: str) -> ClassSource:
        for token in tokenize(text):
            if token.kind == "directive":
                self._directive(token.text)
            elif self._is_skipping:
                continue
            elif self._depth:
                self._depth += (token.text == "{") - (token.text == "}")
                if self._depth == 0 and self._parentheses == 0:
                    self._next_statement()
            else:
                self._scan_outside_braces(token)
        self._find_invocations(self._statement)
        return self._source

    def _scan_outside_braces(self, token: Token) -> None:
        if token.text == ";":
            self._declaration()
            self._next_statement()
        elif token.text == "}":
            self._find_invocations(self._statement)  # macro calls without a semicolon
            self._scope = self._scope[1] if self._scope else None
            self._next_statement()
        elif token.text == "{":
            if self._parentheses:  # a default argument
                self._depth = 1
            else:
                self._open_brace()
        else:
            change = (token.text == "(") - (token.text == ")")
            self._parentheses = max(0, self._parentheses + change)
            self._statement.append(token)

    # Preprocessor

    def _directive(self, text: str) -> None:
        match = _DIRECTIVE.match(text)
        assert match is not None
        name, rest = match["name"], match["rest"]
        if name in ("if", "ifdef", "ifndef"):
            self._before_branch()
            self._conditionals.append(
                _Conditional(
                    self._depth,
                    self._parentheses,
                    self._scope,
                    self._is_skipping,
                    self._statement,
                    len(self._statement),
                )
            )
            self._is_skipping |= name == "if" and rest.strip() in ("0", "false")
        elif name.startswith("el") and self._conditionals:
            self._before_branch()
            self._restore(self._conditionals[-1])
        elif name == "endif" and self._conditionals:
            self._before_branch()
            self._is_skipping = self._conditionals.pop().is_skipping
        elif name == "define" and not self._is_skipping:
            self._define(rest)

    def _before_branch(self) -> None:
        if self._depth or self._is_skipping or not self._statement:
            return
        if self._is_clear and self._parentheses == 0 and self._find_invocations(self._statement):
            self._next_statement()  # macro calls without a semicolon
        else:
            self._is_clear = False

    def _restore(self, state: _Conditional) -> None:
        if self._statement is state.statement:
            del self._statement[state.length :]
        else:
            self._next_statement()
            self._is_clear = state.length == 0
        self._depth, self._parentheses, self._scope, self._is_skipping = state[:4]

    def _define(self, rest: str) -> None:
        if match := _DEFINE.match(rest):
            body = words(match["body"].replace("\\\n", " "))
            if match["parameters"] is not None:
                self._source.macros[match["name"]] = body
            else:
                self._alias(match["name"], body)

    # Declarations

    def _alias(self, name: str, body: Words) -> None:
        if body and body[-1] in self._class_names:
            self._class_names.add(name)
        self._source.aliases[name] = body

    def _declaration(self) -> None:
        texts = tuple(token.text for token in self._statement)
        if texts[:1] == ("using",) and texts[2:3] == ("=",):
            self._alias(texts[1], texts[3:])
        elif texts[:1] == ("typedef",) and len(texts) > 2:
            self._alias(texts[-1], texts[1:-1])
        else:
            self._find_invocations(self._statement)

    def _open_brace(self) -> None:
        texts = [token.text for token in self._statement]
        if "namespace" in texts:
            following = texts[texts.index("namespace") + 1 :]
            name = itertools.takewhile(lambda text: text == "::" or text.isidentifier(), following)
            self._scope = ("".join(name), self._scope)
            self._next_statement()
        elif texts[-2:-1] == ["extern"] and self._statement[-1].kind == "literal":
            self._scope = ("", self._scope)
            self._next_statement()
        else:
            self._find_definition()
            self._depth = 1

    def _find_invocations(self, statement: Sequence[Token]) -> bool:
        """Record possible macro calls. Returns True if the statement contains nothing else."""
        position = 0
        while position < len(statement):
            macro, *opening = statement[position : position + 2]
            if macro.kind != "word" or not opening or opening[0].text != "(":
                return False
            end = _closing(statement, position + 1)
            arguments = (each.text for each in statement[position + 2 : end] if each.kind == "word")
            self._source.invocations.append(
                Invocation(
                    path=self._path,
                    line=macro.line,
                    macro=macro.text,
                    arguments=frozenset(arguments),
                )
            )
            position = end + 1
        return True

    def _find_definition(self) -> None:
        """Look for `returns Class::name(parameters)` in the statement before a brace."""
        tokens = self._statement
        position = 0
        while position + 3 < len(tokens):
            owner, separator, name, opening = tokens[position : position + 4]
            is_member = (separator.text, name.kind, opening.text) == ("::", "word", "(")
            if is_member and owner.text in self._class_names:
                self._add_definition(position)
                return
            if owner.text == "(":
                position = _closing(tokens, position)
            position += 1

    def _add_definition(self, position: int) -> None:
        """Record the definition in which the name of the class is at this position."""
        tokens = self._statement
        name = tokens[position + 2]
        closing = _closing(tokens, position + 3)
        start = position
        while start >= 2 and tokens[start - 1].text == "::" and tokens[start - 2].kind == "word":
            start -= 2
        qualifiers = tuple(each.text for each in tokens[start:position:2])
        if start and tokens[start - 1].text == "::":
            start -= 1
        after = tuple(token.text for token in tokens[closing + 1 :])
        trailing = after[after.index("->") + 1 :] if "->" in after else None
        self._source.definitions.append(
            Definition(
                path=self._path,
                line=name.line,
                namespace=(*self._namespace(), *qualifiers),
                name=name.text,
                returns=self._return_type(tokens[:start]) if trailing is None else trailing,
                parameters=_parameters(tokens[position + 4 : closing]),
                is_conditional=bool(self._conditionals),
                is_clear=self._is_clear,
            )
        )

    def _namespace(self) -> Words:
        names: list[str] = []
        scope = self._scope
        while scope is not None and len(names) < _DEEPEST:
            names += [name for name in reversed(scope[0].split("::")) if name]
            scope = scope[1]
        return tuple(reversed(names))

    def _return_type(self, tokens: Sequence[Token]) -> Words:
        """The return type, without specifiers, attributes, and macros before it."""
        position = 0
        while position < len(tokens):
            token = tokens[position]
            following = tokens[position + 1] if position + 1 < len(tokens) else None
            if token.text == "[" or (following is not None and following.text == "("):
                end = _closing(tokens, position if token.text == "[" else position + 1)
                self._find_invocations(tokens[position : end + 1])
                position = end + 1
                continue
            is_annotation = (
                is_macro_name(token.text) and following is not None and following.kind == "word"
            )
            if not is_annotation and token.text not in _SPECIFIERS and token.kind != "literal":
                break
            position += 1
        return tuple(token.text for token in tokens[position:])


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
    depth = 0
    is_default = False
    position = 0
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
