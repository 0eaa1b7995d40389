"""What tox, nox, hatch and cibuildwheel state about the tests of a project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from configparser import RawConfigParser
from itertools import chain
from typing import Any

from ci.plan.foreign.candidate import (
    ROOT,
    TESTS,
    UNKNOWN,
    Candidate,
    pytest_command,
    rank,
    split_command,
)
from ci.plan.foreign.files import (
    BROKEN,
    ProjectFiles,
    constants,
    parse_ini,
    strings,
    table,
    words_of,
)

# Characters of a value, and of one that it names: values that name each other multiply.
LONGEST_VALUE, LONGEST_NAMED = 1 << 16, 1 << 12

# What `hatch test` installs unless the project says otherwise; its coverage is for `--cover`.
HATCH_TEST = ("pytest", "pytest-mock", "pytest-randomly", "pytest-rerunfailures", "pytest-xdist")


def runners(files: ProjectFiles) -> Iterator[Candidate]:
    """Yield what each runner of tests states, the most common one first."""
    pyproject = files.toml("pyproject.toml")
    yield from _tox_ini("tox.ini", files.ini("tox.ini"))
    legacy = table(pyproject, "tool", "tox").get("legacy_tox_ini")
    if isinstance(legacy, str):
        yield from _tox_ini("pyproject.toml, tool.tox", _legacy(files, legacy))
    yield from _tox_toml("pyproject.toml: tool.tox", table(pyproject, "tool", "tox"))
    yield from _tox_toml("tox.toml:", files.toml("tox.toml"))
    yield from _nox(files.program("noxfile.py"))
    yield from _hatch(table(pyproject, "tool", "hatch", "envs"))
    yield from _cibuildwheel(table(pyproject, "tool", "cibuildwheel"))


# tox


def _legacy(files: ProjectFiles, text: str) -> RawConfigParser:
    try:
        return parse_ini(text)
    except BROKEN as error:
        files.notes.append(f"pyproject.toml: tool.tox.legacy_tox_ini: ignored: {error!s:.200}")
        return parse_ini("")


def _tox_ini(name: str, ini: RawConfigParser) -> Iterator[Candidate]:
    named = [it for it in ini.sections() if it.startswith("testenv:")]
    for section in ("testenv", *sorted(named, key=lambda it: rank(it.removeprefix("testenv:")))):
        if candidate := _tox_env(name, ini, section):
            yield candidate


def _tox_env(name: str, ini: RawConfigParser, section: str) -> Candidate | None:
    def lines(*keys: str) -> list[str]:
        for where in (section, "testenv"):
            for key in keys:
                if ini.has_option(where, key):
                    return _tox_lines(ini, ini.get(where, key))
        return []

    commands = [pytest_command(split_command(line.lstrip("-! "))) for line in lines("commands")]
    command = next(filter(None, commands), ())
    if not command:
        return None
    folder = next(iter(lines("changedir", "change_dir")), ".")
    words = [part for line in lines("deps") for part in _dependency(line)]
    words += [f"--group={it}" for line in lines("dependency_groups") for it in _names(line)]
    words += [f"--extra={it}" for line in lines("extras") for it in _names(line)]
    pairs = (line.partition("=") for line in lines("setenv", "set_env"))
    found = Candidate(
        origin=f"{name}: [{section}]",
        command=command,
        folder=folder,
        environment={key.strip(): value.strip() for key, sign, value in pairs if sign},
    )
    return found.adding(words)


def _names(line: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", line) if word]


def _dependency(line: str) -> list[str]:
    return split_command(line) if line.startswith("-") else [line]


def _tox_lines(ini: RawConfigParser, value: str) -> list[str]:
    """Return the lines of a value for an environment that runs tests."""
    text = re.sub(r"\\\n\s*", " ", value) if len(value) <= LONGEST_VALUE else ""
    for _ in range(8):
        replaced = _tox_text(ini, text)
        if replaced == text or len(replaced) > LONGEST_VALUE:
            break
        text = replaced
    lines = []
    for line in text.splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        factors = re.fullmatch(r"([\w.,!-]+):(?:\s+(.*))?", line)
        if factors and not _is_for_tests(factors[1]):
            continue
        line = (factors[2] or "") if factors else line
        if line:
            lines.append(line)
    return lines


def _is_for_tests(factors: str) -> bool:
    def fits(factor: str) -> bool:
        if factor.startswith("!"):
            return not fits(factor[1:])
        return (
            factor in TESTS or re.fullmatch(r"py|py3|py311|3\.11|cpython|linux", factor) is not None
        )

    return any(all(map(fits, each.split("-"))) for each in factors.split(","))


def _substitute(ini: RawConfigParser, name: str) -> str:
    """Return what tox puts in place of ``{name}``; what only tox can know is ``UNKNOWN``."""
    known = {"toxinidir": ROOT, "tox_root": ROOT, "envpython": "python", "/": "/"}
    known |= {"posargs": "", "envbindir": ROOT, "env_bin_dir": ROOT, "tty": ""}
    if name in known:
        return known[name]
    kind, _, rest = name.partition(":")
    if kind == "posargs":
        return rest
    if kind == "env":
        return rest.partition(":")[2]
    if (found := re.fullmatch(r"\[([^\]]+)\](\w+)", name)) and ini.has_option(found[1], found[2]):
        text = ini.get(found[1], found[2])
        return text if len(text) <= LONGEST_NAMED else UNKNOWN
    return "" if kind == "tty" else UNKNOWN


def _tox_toml(name: str, settings: Mapping[str, Any]) -> Iterator[Candidate]:
    base = table(settings, "env_run_base")
    envs = table(settings, "env")
    for env in ("", *sorted(envs, key=rank)):
        merged = {**base, **(table(envs, env) if env else {})}
        ini = parse_ini("")
        commands = merged.get("commands")
        for command in commands if isinstance(commands, list) else ():
            if words := pytest_command([*_toml_words(ini, command)]):
                where = f"env.{env}" if env else "env_run_base"
                deps = [_tox_text(ini, it) for it in strings(merged.get("deps"))]
                asked = [part for line in deps for part in _dependency(line)]
                asked += [f"--group={it}" for it in strings(merged.get("dependency_groups"))]
                asked += [f"--extra={it}" for it in strings(merged.get("extras"))]
                folder = next(iter(strings(merged.get("change_dir"))), ".")
                variables = {**table(merged, "setenv"), **table(merged, "set_env")}
                candidate = Candidate(
                    origin=_joined(name, where),
                    command=words,
                    folder=folder,
                    environment={
                        key: _tox_text(ini, it) if isinstance(it, str) else UNKNOWN
                        for key, it in variables.items()
                    },
                )
                yield candidate.adding(asked)
                break


def _joined(name: str, where: str) -> str:
    return f"{name} {where}" if name.endswith(":") else f"{name}.{where}"


def _toml_words(ini: RawConfigParser, command: object) -> Iterator[str]:
    for item in command if isinstance(command, list) else ():
        if isinstance(item, str):
            yield _tox_text(ini, item)
        elif isinstance(item, Mapping) and item.get("replace") == "posargs":
            yield from (_tox_text(ini, it) for it in strings(item.get("default", [])))


def _tox_text(ini: RawConfigParser, text: str) -> str:
    return re.sub(r"\{([^{}]*)\}", lambda found: _substitute(ini, found[1]), text)


# nox


def _nox(tree: ast.Module) -> Iterator[Candidate]:
    known = constants(tree)
    functions = {it.name: it for it in tree.body if isinstance(it, ast.FunctionDef)}
    sessions = [it for it in functions.values() if it.args.args and _is_session(it)]
    for function in sorted(sessions, key=lambda it: rank(it.name)):
        words, command = list[str](), tuple[str, ...]()
        for call in _calls(function, functions):
            said, is_install = _session_call(call, known)
            if is_install:
                words += said
            else:
                command = command or pytest_command(said)
        if command:
            origin = f"noxfile.py: session {function.name}"
            yield Candidate(origin=origin, command=command).adding(words)


def _is_session(function: ast.FunctionDef) -> bool:
    names = (it.func if isinstance(it, ast.Call) else it for it in function.decorator_list)
    return any(
        (it.attr if isinstance(it, ast.Attribute) else getattr(it, "id", "")) == "session"
        for it in names
    )


def _calls(
    function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef]
) -> Iterator[ast.Call]:
    """Yield the calls of a session, in order, and those of the functions that it is passed to."""
    own = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in sorted(own, key=lambda it: (it.lineno, it.col_offset)):
        helper = functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if helper and helper is not function:
            yield from (node for node in ast.walk(helper) if isinstance(node, ast.Call))
        yield call


_INSTALLERS = (
    *(("uv", "sync"), ("uv", "pip", "install"), ("pip", "install")),
    *(("python", "-m", "pip", "install"), ("python", "-m", "uv", "pip", "install")),
)


def _session_call(call: ast.Call, known: Mapping[str, ast.expr]) -> tuple[list[str], bool]:
    """Return the words of a call of the session, and whether they install packages."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method not in ("install", "run", "run_always", "run_install"):
        return [], False
    words = [word for argument in call.args for word in _argument(argument, known)]
    if method == "install":
        return words, True
    for installer in _INSTALLERS:
        if tuple(words[: len(installer)]) == installer:
            return words[len(installer) :], True
    return words, False


def _argument(node: ast.expr, known: Mapping[str, ast.expr]) -> Iterator[str]:
    inner = node.value if isinstance(node, ast.Starred) else node
    name = getattr(inner.func, "attr", "") if isinstance(inner, ast.Call) else ""
    if isinstance(inner, ast.Call) and name == "dependency_groups":
        groups = chain.from_iterable(words_of(it, known) for it in inner.args[1:])
        yield from (f"--group={group}" for group in groups)
    elif isinstance(inner, ast.Subscript):
        yield from _looked_up(inner, known)
    elif isinstance(inner, ast.JoinedStr):
        yield UNKNOWN
    elif isinstance(inner, ast.IfExp):  # `session.posargs or [...]` has no type of its own
        yield from words_of(inner.orelse, known)
    elif isinstance(inner, ast.BoolOp):
        yield from words_of(inner.values[-1], known)
    else:
        yield from words_of(node, known)


def _looked_up(node: ast.Subscript, known: Mapping[str, ast.expr]) -> Iterator[str]:
    """Yield the option for ``PYPROJECT["dependency-groups"]["test"]``, or for such an extra."""
    name = next(words_of(node.slice, known), "")
    table_of = [*words_of(node.value.slice, known)] if isinstance(node.value, ast.Subscript) else []
    options = {"dependency-groups": "--group", "optional-dependencies": "--extra"}
    if name and table_of and table_of[0] in options:
        yield f"{options[table_of[0]]}={name}"


# hatch


def _hatch(envs: Mapping[str, Any]) -> Iterator[Candidate]:
    for name in sorted(envs, key=lambda it: (it != "hatch-test", rank(it))):
        env = table(envs, name)
        template = env.get("template", "default")
        base = table(envs, template) if isinstance(template, str) and template != name else {}
        merged = {**(base if name != "hatch-test" else {}), **env}
        words = [*strings(merged.get("dependencies", []))]
        if name == "hatch-test" and not words:
            words = [*HATCH_TEST]
        words += strings(merged.get("extra-dependencies", []))
        words += [f"--extra={it}" for it in strings(merged.get("features", []))]
        words += [f"--group={it}" for it in strings(merged.get("dependency-groups", []))]
        scripts = table(merged, "scripts")
        lines = [line for key in sorted(scripts, key=rank) for line in strings(scripts[key])]
        commands = (pytest_command(_hatch_words(line)) for line in lines)
        command = next(filter(None, commands), ())
        if command or name == "hatch-test":
            origin = f"pyproject.toml: tool.hatch.envs.{name}"
            yield Candidate(origin=origin, command=command).adding(words)


def _hatch_words(line: str) -> list[str]:
    text = re.sub(r"\{args(?::([^{}]*))?\}", lambda found: found[1] or "", line)
    text = text.replace("{root}", ROOT)
    return split_command(re.sub(r"\{[^{}]*\}", UNKNOWN, text))


# cibuildwheel


def _cibuildwheel(settings: Mapping[str, Any]) -> Iterator[Candidate]:
    """Yield the packages of its tests; its command is for wheels, and often runs only a part."""
    words: list[str] = []
    for text in strings(settings.get("test-requires", [])):
        words += _requires(text)
    words += [f"--extra={it}" for it in strings(settings.get("test-extras", []))]
    words += [f"--group={it}" for it in strings(settings.get("test-groups", []))]
    if words:
        yield Candidate(origin="pyproject.toml: tool.cibuildwheel").adding(words)


def _requires(text: str) -> Sequence[str]:
    return split_command(text.replace("{project}", ROOT).replace("{package}", ROOT))
