"""Renders the C sources of compiled operators."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from codegen.emit import make_environment
from codegen.model import class_name
from codegen.triton.compiler import CompiledKernel, Toolchain, jobs_of
from codegen.triton.spec import C_TYPES, FieldKind, Operator, Plan, Variant, substitute

_BYTES_PER_LINE = 64  # four characters each; keeps lines short enough for diffs


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """A compiled variant, with the properties that the templates use."""

    operator: Operator
    variant: Variant
    target: int
    kernel: CompiledKernel
    data_types: Mapping[str, int]

    @property
    def name(self) -> str:
        return f"{self.variant.name}_{self.target}"

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """For each parameter, its type in C and the field of the request that is passed."""
        types = self.variant.types
        return [
            (C_TYPES.get(types[name], "void*"), self.variant.field_of(name))
            for name in self.kernel.parameters
        ]

    @property
    def cubin_lines(self) -> Iterator[str]:
        """The machine code as lines of a string literal, which compiles faster than an array."""
        code = self.kernel.cubin
        for start in range(0, len(code), _BYTES_PER_LINE):
            # Always three octal digits, so that a digit after them is not read as a part.
            yield "".join(f"\\{byte:03o}" for byte in code[start : start + _BYTES_PER_LINE])

    @property
    def grid(self) -> list[str]:
        values = self._values()
        sizes = [substitute(each, values) for each in self.variant.grid]
        return [*sizes, "1", "1"][:3]

    @property
    def conditions(self) -> list[str]:
        """The C conditions under which the variant is used; all must be true."""
        values = self._values()
        ranges = [
            f"{field} == ({C_TYPES[type]}){field}"
            for name, type in self.variant.types.items()
            if self.operator.fields[field := self.variant.field_of(name)] is FieldKind.INTEGER
            and type != "i64"
        ]
        when = [f"({each})" for each in self.variant.when]
        assumptions = [*self._derived_assumptions(), *ranges, *when]
        return [substitute(each, values) for each in assumptions] or ["1"]

    @property
    def assumptions(self) -> list[str]:
        """The conditions with the names of ``build.py``, without the range checks of integers."""
        return [*self._derived_assumptions(), *self.variant.when]

    def _derived_assumptions(self) -> Iterator[str]:
        variant, fields = self.variant, self.operator.fields
        for field, names in variant.data_types.items():
            tests = " || ".join(f"{field} == {name}" for name in names)
            yield f"({tests})" if len(names) > 1 else tests
        for name, value in variant.constants.items():
            if (field := variant.field_of(name)) in fields:
                yield f"{field} == {int(value)}"
        for field in map(variant.field_of, variant.divisible):
            is_pointer = fields[field] is FieldKind.POINTER
            yield f"(uintptr_t){field} % 16 == 0" if is_pointer else f"{field} % 16 == 0"

    def _values(self) -> dict[str, str]:
        return {
            **{name: name for name in ("uintptr_t", *C_TYPES.values())},
            **{name: str(value) for name, value in self.data_types.items()},
            **{name: str(int(value)) for name, value in self.variant.numbers.items()},
            **{name: f"request->{name}" for name in self.operator.fields},
        }


def render(
    plans: Sequence[Plan],
    kernels: Mapping[str, CompiledKernel],
    toolchain: Toolchain,
    data_types: Mapping[str, int],
) -> dict[str, str]:
    """Render all files, by path relative to the output folder."""
    environment = make_environment()
    header = environment.get_template("triton/targets.h.j2")
    targets = sorted(plans[0].variants)
    files = {"triton/targets.h": header.render(targets=targets, version=toolchain.version)}
    rows = []
    for plan in plans:
        launchers: dict[int, list[Launcher]] = {}
        for job in jobs_of([plan]):
            launcher = Launcher(
                operator=plan.operator,
                variant=job.variant,
                target=job.target,
                kernel=kernels[job.key(toolchain)],
                data_types=data_types,
            )
            launchers.setdefault(job.target, []).append(launcher)
        for suffix in ("h", "c"):
            template = environment.get_template(f"triton/operator.{suffix}.j2")
            files[f"triton/{plan.source.name}.{suffix}"] = template.render(
                name=plan.source.name,
                symbol=f"InfiniOpsTriton{class_name(plan.source.name)}",
                fields=plan.operator.fields,
                launchers=launchers,
            )
        rows += [_row(plan.source.name, each) for group in launchers.values() for each in group]
    files["triton/kernels.json"] = "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"
    return files


def _row(operator: str, launcher: Launcher) -> dict[str, object]:
    """The properties of a kernel in kernels.json, for people and tests."""
    kernel = launcher.kernel
    return {
        "operator": operator,
        "variant": launcher.variant.name,
        "target": launcher.target,
        "conditions": launcher.assumptions,
        "entry": kernel.entry,
        "parameters": {name: launcher.variant.types[name] for name in kernel.parameters},
        "hidden_pointers": kernel.hidden,
        "num_warps": kernel.num_warps,
        "shared_bytes": kernel.shared,
        "cubin_bytes": len(kernel.cubin),
        "cubin_sha256": sha256(kernel.cubin).hexdigest(),
    }
