"""Makes a kit: sources, program, wheels, and the script that carries out its steps."""

from __future__ import annotations

import platform as machine
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory, mkdtemp
from typing import NoReturn

from ci.engines import EngineMessage
from ci.errors import UsageError
from ci.model.plan import RunPlan
from ci.plan.project import Project
from ci.plan.request import RunRequest
from ci.run.progress import Progress
from ci.upkeep.bundle.pack import Packer, program_files
from ci.upkeep.bundle.wheels import DEVICES, program_requirements
from ci.upkeep.kit import document as names
from ci.upkeep.kit.document import KitDocument, checksums
from ci.upkeep.kit.requirements import stage_requirements
from ci.upkeep.kit.steps import steps_of
from ci.upkeep.kit.wheels import OLDEST_PROGRAM, download, parse_version
from ci.util.files import PROGRAM_ROOT

NEEDED_MB = 500  # beside the kit: the environment of the program has 160, the rest is for results
TEMPLATES = {names.README: "readme.md", names.RUN: "run.sh"}


@dataclass(frozen=True, kw_only=True)
class KitMaker:
    """Makes the kit of the one platform of a request."""

    project: Project
    request: RunRequest
    plan: RunPlan
    pythons: Sequence[str]
    wheels: Sequence[str]  # requirements in addition to those that files name
    progress: Progress

    def make(self, output: Path) -> tuple[KitDocument, tuple[str, ...]]:
        """Make the folder ``output``; return its document, and what the sources lack.

        The folder appears when all of it is there.
        """
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            message = f"--output: {output}: got an existing one, expected a new folder"
            raise UsageError(message, remedy="Name another folder, or remove this one.")
        if not output.parent.is_dir():
            raise UsageError(f"--output: there is no folder {output.parent}")
        folder = Path(mkdtemp(dir=output.parent, prefix=f".{output.name[:40]}."))
        try:
            left_out = self._fill(folder)
            document = self._document()
            (folder / names.DOCUMENT).write_text(document.model_dump_json(indent=1) + "\n")
            self._write_texts(folder, document)
            (folder / names.SUMS).write_text(checksums(folder))
            folder.chmod(0o755)
            folder.replace(output)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return document, left_out

    def _document(self) -> KitDocument:
        config, selection = self.project.config, self.project.config.selection
        platform = self.plan.platform
        return KitDocument(
            version=names.VERSION,
            project=self.request.project,
            commit=self.request.commit,
            dirty=self.request.dirty,
            platform=platform,
            created_at=datetime.now(UTC),
            machine=machine.machine(),
            pythons=tuple(self.pythons),
            smoke=selection.smoke if selection else None,
            contract=config.contracts is not None,
            measurements=tuple(
                it.name
                for it in config.stages
                if it.on_request and platform in (it.platforms or (platform,))
            ),
        )

    def _fill(self, folder: Path) -> tuple[str, ...]:
        with TemporaryDirectory(prefix="infini-ci-kit-") as temporary:
            packer = Packer(
                project=self.project,
                request=self.request,
                connect=_no_engine,
                wheels=(),
                progress=self.progress,
                folder=Path(temporary),
            )
            left_out = packer.pack((), folder / names.BUNDLE).left_out
        for name in program_files():
            (folder / names.PROGRAM / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROGRAM_ROOT / name, folder / names.PROGRAM / name)
        program = program_requirements(*([DEVICES] if self.plan.devices else []))
        (folder / names.REQUIREMENTS).write_text("\n".join(program) + "\n")
        platform = ["--requirement", str(self.plan.host.requirements)]
        platform += [*stage_requirements(self.plan), *self.wheels]
        for version in self.pythons:
            text = f"collecting the wheels for Python {version}"
            self.progress.event(self.plan.label, EngineMessage(text))
            wheels = folder / names.WHEELS
            # Two environments: their requirements may contradict each other.
            download(wheels, version, platform)
            if parse_version(version) >= OLDEST_PROGRAM:
                wanted = ["pip", "--requirement", str(folder / names.REQUIREMENTS)]
                download(wheels, version, wanted)
        return left_out

    def _write_texts(self, folder: Path, document: KitDocument) -> None:
        commit = f" at {document.commit[:12]}" if document.commit else ""
        programs = [it for it in self.pythons if parse_version(it) >= OLDEST_PROGRAM]
        steps = "".join(f"| `{it.name}` | {it.about} |\n" for it in steps_of(document))
        values = {
            "project": document.project,
            "platform": self.plan.label,
            "name": document.platform,
            "commit": commit + (", with uncommitted changes" if document.dirty else ""),
            "machine": document.machine,
            "pythons": ", ".join(document.pythons),
            "programs": " ".join(programs),
            "program_choice": " or ".join(programs),
            "needs": self._needs(),
            "needed": str(NEEDED_MB),
            "steps": steps.rstrip("\n"),
        }
        for name, template in TEMPLATES.items():
            text = Path(__file__).with_name(template).read_text(encoding="utf-8")
            (folder / name).write_text(Template(text).substitute(values), encoding="utf-8")
        (folder / names.RUN).chmod(0o755)

    def _needs(self) -> str:
        """Return what the platform needs on the machine, as an entry of a list."""
        if not self.plan.host.sees_torch:
            return "a C++ compiler. Everything else, torch included, is in the kit."
        also = "its driver, its compiler" if self.plan.devices else "a C++ compiler"
        versions = " or ".join(self.pythons)
        return (
            f"{also}, and a Python {versions} with its torch. Nothing is installed over that torch."
        )


def _no_engine(plan: RunPlan) -> NoReturn:
    raise AssertionError(f"a kit has no image of {plan.platform}")
