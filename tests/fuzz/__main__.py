"""Feed hostile inputs to every reader of what a container wrote: ``python -m tests.fuzz``.

Half of the inputs come from hypothesis, which changes valid documents; half from atheris, which
follows the coverage of the readers, starting from a corpus of such documents. Each target has a
process of its own with bounded memory. An input that breaks a promise is kept, and
``python -m tests.fuzz --input FILE TARGET`` repeats it.

Exit code: 0, or 1 if an input broke a promise, or 2 if a fuzzer did not run.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.bounds import MOST_CPU_S, limit_memory, run_within_time

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

INPUTS = 100_000
TOOLS = ("hypothesis", "atheris")
CORPUS = 100  # documents from which atheris starts, for each target
LONGEST = 1 << 16  # bytes of an input of atheris; longer ones only repeat
KEPT = Path("build/fuzz")  # inputs that broke a promise
# Modules whose coverage guides atheris.
GUIDES = ("ci", "tarfile")
FOUND = 1
NOT_RUN = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzers, and print a table."""
    options = _parser().parse_args(arguments)
    if options.input is not None:
        [name] = options.targets
        check = _find_target(name).check
        limit_memory()
        run_within_time(check, options.input.read_bytes())
        return 0
    if options.tool:
        [name] = options.targets
        return {"hypothesis": _by_hypothesis, "atheris": _by_atheris}[options.tool](name, options)
    if find_spec("atheris") is None:
        print("fuzz: error: no module atheris. Install it: pip install --group fuzz")
        return NOT_RUN
    return _run_all(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="targets; all by default")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="number of inputs in all")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, default=1, help="another one gives other inputs")
    parser.add_argument("--input", type=Path, help="a file to repeat, with its target")
    parser.add_argument("--tool", choices=TOOLS, help=argparse.SUPPRESS)  # of a child process
    return parser


@dataclass(frozen=True, kw_only=True)
class Part:
    """The inputs of one fuzzer for one target."""

    target: str
    tool: str
    inputs: int
    code: int = 0
    seconds: float = 0.0
    output: str = ""


def _run_all(options: argparse.Namespace) -> int:
    from tests.fuzz.targets import TARGETS

    chosen = [it for it in TARGETS if it.name in (options.targets or [it.name])]
    total = sum(it.share for it in chosen) * len(TOOLS)
    parts = [
        Part(target=it.name, tool=tool, inputs=round(options.inputs * it.share / total))
        for it in chosen
        for tool in TOOLS
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(lambda part: _run_part(part, options.seed), parts))
    print("| Target | Fuzzer | Inputs | Seconds | Result |\n| --- | --- | ---: | ---: | --- |")
    for part in done:
        how = {0: "ok", FOUND: "broken"}.get(part.code, f"exit code {part.code}")
        print(f"| {part.target} | {part.tool} | {part.inputs:,} | {part.seconds:.0f} | {how} |")
    print(f"{sum(part.inputs for part in done):,} inputs")
    for part in done:
        if part.code:
            print(f"\n{part.target}, {part.tool}:\n{part.output}")
    return FOUND if any(part.code for part in done) else 0


def _run_part(part: Part, number: int) -> Part:
    command = [sys.executable, "-m", "tests.fuzz", "--tool", part.tool, "--seed", str(number)]
    start = monotonic()
    done = subprocess.run(
        [*command, "--inputs", str(part.inputs), part.target],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    seconds, lines = monotonic() - start, done.stdout.decode(errors="replace").splitlines()
    print(f"{part.target}, {part.tool}: {seconds:.0f} s", file=sys.stderr)
    output = "\n".join(line[:500] for line in lines[-40:])
    code = done.returncode if done.returncode in (0, NOT_RUN) else FOUND
    return Part(
        target=part.target,
        tool=part.tool,
        inputs=part.inputs,
        code=code,
        seconds=seconds,
        output=output,
    )


def _find_target(name: str) -> Target:
    from tests.fuzz.targets import TARGETS

    return {target.name: target for target in TARGETS}[name]


def keep_failing(target: Target) -> Callable[[bytes], None]:
    """The check of a target, which keeps an input that fails."""

    def check(data: bytes) -> None:
        try:
            run_within_time(target.check, data)
        except BaseException:
            KEPT.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256(data).hexdigest()[:12]
            path = KEPT / f"{target.name.replace(' ', '-')}-{digest}"
            path.write_bytes(data)
            print(f"kept: {path}, {len(data):,} bytes", file=sys.stderr)
            raise

    return check


def _by_hypothesis(name: str, options: argparse.Namespace) -> int:
    target = _find_target(name)
    limit_memory()
    _generate(target, keep_failing(target), options.inputs, options.seed)
    return 0


def _generate(target: Target, use: Callable[[bytes], None], count: int, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(target.inputs)
    def inputs(data: bytes) -> None:
        use(data)

    inputs()


def _by_atheris(name: str, options: argparse.Namespace) -> int:
    import atheris

    with atheris.instrument_imports(include=list(GUIDES)):
        target = _find_target(name)
    with TemporaryDirectory(prefix="infini-fuzz-corpus-") as corpus:

        def keep(data: bytes) -> None:
            digest = hashlib.sha256(data).hexdigest()
            Path(corpus, digest).write_bytes(data[:LONGEST])

        _generate(target, keep, CORPUS, options.seed)
        limit_memory()
        flags: dict[str, Any] = {
            "runs": options.inputs,
            "seed": options.seed,
            "max_len": LONGEST,
            # The bounds of this program come first.
            "timeout": int(10 * MOST_CPU_S),
            "rss_limit_mb": 0,
            "artifact_prefix": f"{KEPT}/",
        }
        KEPT.mkdir(parents=True, exist_ok=True)
        words = [f"-{flag}={value}" for flag, value in flags.items()]
        atheris.Setup([sys.argv[0], corpus, *words], keep_failing(target))
        atheris.Fuzz()  # ends the process
    return 0


if __name__ == "__main__":
    sys.exit(main())
