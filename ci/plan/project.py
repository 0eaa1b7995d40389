"""Read the files that planning needs: configuration, site file, recipes, requirements, contracts.

``load_project`` reads the files of any run, ``plan_run`` those of a run of some platforms.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.errors import ConfigError, UsageError
from ci.facts.contract import load_contract
from ci.model.outcomes import Suite
from ci.model.plan import ContractPlan, EngineKind, EnginePlan, NetworkPlan, ResultLimits, RunPlan
from ci.model.platforms import PLATFORMS
from ci.plan import git_history
from ci.plan.config import Config, DevicePolicy, NetworkConfig
from ci.plan.given import given_to
from ci.plan.load import load_config, load_site
from ci.plan.network import folder_word, network_settings, read_pip_settings, resolve_network
from ci.plan.planning import (
    AS_CONFIGURED,
    CA_BUNDLE_IN_CONTEXT,
    DOCKERFILE,
    ENTRY_IN_CONTEXT,
    PlanInputs,
    RunOptions,
    make_plan,
)
from ci.plan.site import ENGINES, SiteConfig
from ci.plan.values import IMAGE_REFERENCE
from ci.util.files import PROGRAM_ROOT, RECIPES
from ci.util.git import is_tracked
from ci.util.invocation import CONFIG_FILE, REPOSITORY
from ci.util.redaction import secret_values
from ci.util.requirements import brings_torch
from ci.util.text import hide_values, near_match

DEFAULT_REQUIREMENTS = Path(__file__).resolve().with_name("default-requirements.txt")
# Files of the recipes for every platform. Those for one platform are in the folder ``platforms``.
RECIPE_FILES = (
    DOCKERFILE,
    "add-user",
    ENTRY_IN_CONTEXT,
    "install-tools",
    "make-devices-environment",
    "make-environment",
    "retry",
    "vendor_packages.py",
)
DEVICES_REQUIREMENTS = "requirements-devices.txt"  # packages that detect the devices
SITE_FILE = "ci.site.yaml"
SELECTION_FILES = (".yaml", ".yml")  # a selection with this suffix is a file of the source
KEPT_CONTRACTS = "contracts"  # in the folder of a run: those of its start


@dataclass(frozen=True, kw_only=True)
class Project:
    """A configuration with the settings of this site."""

    path: Path
    config: Config
    site: SiteConfig
    environ: Mapping[str, str]
    pip: NetworkConfig

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def source(self) -> Path:
        return (self.folder / self.config.source).resolve()

    def network(self) -> NetworkPlan:
        return resolve_network(self.environ, *self._network_sections(), folder=self.folder)

    def network_settings(self) -> dict[str, str | None]:
        return network_settings(self.environ, *self._network_sections())

    def _network_sections(self) -> tuple[NetworkConfig, ...]:
        return (self.site.network, self.config.network, self.pip)

    def base_image(self, platform: str) -> str | None:
        """Return this site's own base image, if it has one."""
        variable = f"INFINI_CI_BASE_IMAGE_{platform.upper()}"
        named = self.environ.get(variable)
        if named and not re.fullmatch(IMAGE_REFERENCE, named):
            message = f"{variable}: got '{named}', expected a string that matches"
            raise ConfigError(f"{message} {IMAGE_REFERENCE}", remedy=f"Correct {variable}.")
        return named or self.site.platform_settings(platform).base_image

    def engine(
        self, platform: str, asked: str | None, *, ray_address: str | None = None
    ) -> EnginePlan:
        """Return the engine of a platform: ``asked`` on the command line, else this site's.

        ``ray_address`` is that of the engine ``ray``.
        """
        variable = f"INFINI_CI_ENGINE_{platform.upper()}"
        from_site = self.environ.get(variable) or self.site.platform_settings(platform).engine
        name = asked or from_site or "auto"
        if name in ENGINES:
            return EnginePlan(name=name, kind=EngineKind(name), ray_address=ray_address)
        if found := self.site.engines.get(name):
            return EnginePlan(name=name, kind=found.kind, **found.model_dump())
        known = [*ENGINES, *self.site.engines]
        where = "" if asked else f"{variable}: "  # the site file was checked when it was read
        expected = f"expected one of {', '.join(known)}{near_match(name, known)}"
        raise UsageError(
            f"{where}unknown engine '{name}', {expected}",
            remedy=f"Define other engines under `engines:` in {SITE_FILE}.",
        )

    def interpreter(self, platform: str) -> str | None:
        """Return this site's Python for the host engine, if it names one."""
        named = self.environ.get(f"INFINI_CI_PYTHON_{platform.upper()}")
        return named or self.site.platform_settings(platform).python

    def other_engines(self, platform: str, asked: str | None) -> tuple[EnginePlan, ...]:
        """Return the site's further engines of a platform; none if another one is requested."""
        if asked or self.environ.get(f"INFINI_CI_ENGINE_{platform.upper()}"):
            return ()
        names = self.site.platform_settings(platform).other_engines
        return tuple(self.engine(platform, name) for name in names)

    def retries(self, platform: str) -> int:
        """Return how often a platform is tried again after an infrastructure fault."""
        settings = self.site.platform_settings(platform)
        return len(settings.other_engines) if settings.retries is None else settings.retries

    def devices(self, platform: str) -> DevicePolicy:
        """Return the policy for the devices of a platform."""
        return (
            self.site.platform_settings(platform).devices or self.config.platforms[platform].devices
        )


def site_file(config: Path, environ: Mapping[str, str]) -> Path:
    """Return the site file: INFINI_CI_SITE, else the one beside the configuration."""
    return Path(environ.get("INFINI_CI_SITE") or config.parent / SITE_FILE)


def load_project(
    path: Path, environ: Mapping[str, str], pip: NetworkConfig | None = None
) -> Project:
    """Load a configuration and the site file beside it, or the one that INFINI_CI_SITE names.

    One beside it that git tracks came with the sources: it must not choose what runs here.

    ``pip`` has the settings of pip's own configuration, the last source of network settings. From
    now on, this process hides the secret values of the environment and of these settings.
    """
    path = path.resolve()
    site_path, is_named = site_file(path, environ), bool(environ.get("INFINI_CI_SITE"))
    config, site, wrong = None, SiteConfig(), []
    try:
        config = load_config(path)
    except ConfigError as error:
        wrong.append(error)
    try:
        if is_named or site_path.exists():
            site = load_site(site_path)
            keys = site.keys_of_programs()
            if keys and not is_named and is_tracked(site_path):
                raise ConfigError(
                    f"{site_path}: git tracks it, so its authors would decide what this machine"
                    f" runs: got {keys[0]}, expected it in an untracked file",
                    remedy=f"To use it, name it: INFINI_CI_SITE={shlex.quote(str(site_path))}. Or"
                    f" run `git rm --cached {SITE_FILE}` there, and add it to .gitignore.",
                )
        if (folder := site_path.parent.resolve()) != path.parent:
            update = {"network": _with_absolute_paths(site.network, folder)}
            site = site.model_copy(update=update)
    except ConfigError as error:
        wrong.append(error)
    if config is None or wrong:
        remedy = next((error.remedy for error in wrong if error.remedy), None)
        raise ConfigError("\n".join(map(str, wrong)), remedy=remedy)
    project = Project(
        path=path, config=config, site=site, environ=environ, pip=pip or NetworkConfig()
    )
    addresses = filter(None, project.network_settings().values())
    hide_values(secret_values(environ, addresses=addresses, patterns=site.redact))
    return project


def load_here(path: Path) -> Project:
    """Load a configuration with the settings of this machine: its environment, and its pip's."""
    return load_project(path, os.environ, read_pip_settings(os.environ))


def _with_absolute_paths(network: NetworkConfig, folder: Path) -> NetworkConfig:
    """Return a network section with absolute paths; they were relative to ``folder``."""
    words = (network.pip_find_links or "").split()
    links = [folder_word(folder / word) if (folder / word).exists() else word for word in words]
    bundle = network.ca_bundle
    if bundle and (folder / bundle).exists():
        bundle = str(folder / bundle)
    full = {"pip_find_links": " ".join(links) or None, "ca_bundle": bundle}
    return network.model_copy(update=full)


def chosen_platforms(config: Config, names: Sequence[str]) -> tuple[str, ...]:
    """Return the named platforms without duplicates; raises ``UsageError`` for unknown ones."""
    known = config.platforms
    unknown = []
    for name in names:
        if name not in known:
            hint = near_match(name, [it for it in known if it[0] == name[:1]])  # no "cpu" for "gpu"
            unknown.append(f"unknown platform '{name}', configured: {', '.join(known)}{hint}")
    if unknown:
        raise UsageError("\n".join(unknown))
    return tuple(dict.fromkeys(names))


def plan_run(
    project: Project,
    platforms: Sequence[str],
    *,
    run_id: str,
    source: Path,
    results: Path,
    options: RunOptions = AS_CONFIGURED,
) -> tuple[RunPlan, ...]:
    """Plan every named platform of a run; ``results`` is the folder of all runs.

    A run that began earlier has the contracts of its start.
    """
    if not source.is_dir():
        raise UsageError(f"--source: {source} is not a folder")
    network = project.network()
    subfolder = git_history.subfolder(source)
    plans = []
    for name in chosen_platforms(project.config, platforms):
        requirements = requirements_file(project, name)
        contract = _contract(project, name, source, results / run_id / KEPT_CONTRACTS)
        selection = project.config.selection
        if options.selected and selection and contract and contract.suite:
            refuse_typos(options.selected, contract.suite, source, selection.files)
        engine = project.engine(name, options.engine_of(name), ray_address=options.ray_address)
        if options.python and engine.kind != EngineKind.HOST:
            message = f"--python: platform {name}: got engine {engine.name}, expected host"
            raise UsageError(message, remedy="Add it: --engine host")
        inputs = PlanInputs(
            run_id=run_id,
            source=source.resolve(),
            results=results.resolve() / run_id,
            context=_context(project, name, requirements, network),
            requirements=requirements,
            base_image=project.base_image(name),
            network=network,
            engine=engine,
            other_engines=project.other_engines(name, options.engine_of(name)),
            retries=project.retries(name),
            devices=project.devices(name),
            brings_torch=brings_torch(requirements.read_text(errors="replace")),
            interpreter=options.python or project.interpreter(name),
            pass_environment=project.site.pass_environment,
            contract=contract,
            options=options,
            subfolder=subfolder,
            result_limits=ResultLimits(**project.site.results.model_dump()),
            given=given_to(name, options.given),
        )
        plans.append(make_plan(project.config, PLATFORMS[name], inputs))
    _refuse_same_titles(project, plans)
    return tuple(plans)


def requirements_file(project: Project, platform: str) -> Path:
    """Return the requirements of a platform: its own file, or this program's."""
    named = project.config.platforms[platform].requirements
    return _file(project, "requirements", platform, named) if named else DEFAULT_REQUIREMENTS


def _refuse_same_titles(project: Project, plans: Sequence[RunPlan]) -> None:
    """Raise ``ConfigError`` if two rows of the table, and of its history, have the same name."""
    named: dict[str, str] = {}
    for plan in plans:
        if (other := named.setdefault(plan.title, plan.platform)) != plan.platform:
            raise ConfigError(
                f"{project.path.name}: platforms.{plan.platform}.label: got '{plan.title}', the"
                f" label of platforms.{other}, expected a unique label",
                remedy="Give each its own `label:`, or run them separately.",
            )


def _contract(project: Project, platform: str, source: Path, kept: Path) -> ContractPlan | None:
    """Return the contract in the folder ``kept``, if that exists, else the source's."""
    folder = project.config.contracts
    if folder is None:
        return None
    suite, torch = None, None
    path = source / folder / f"{platform}.yaml"
    if (read := kept / path.name if kept.is_dir() else path).exists():
        simulated = project.config.platforms[platform].simulated
        contract = load_contract(read, platform=platform, simulated=simulated)
        suite, torch = contract.suite, contract.torch
    file = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path
    config = config_option(project.path)
    return ContractPlan(suite=suite, torch=torch, config=config, file=str(file))


def config_option(config: Path) -> str | None:
    """Return the value of ``--config`` for commands in this repository; ``None``: no option.

    The default configuration needs no option. The place of another project's configuration is not
    known to the reader of a command.
    """
    own = config.is_relative_to(REPOSITORY) and config != REPOSITORY / CONFIG_FILE
    return str(config.relative_to(REPOSITORY)) if own else None


def refuse_typos(selected: str, suite: Suite, source: Path, files: Sequence[str]) -> None:
    """Raise ``UsageError`` for a pattern without a match, and a name close to a known one.

    Known are the operators of the platform's contract and the names of ``files`` of the source,
    without their suffix. A name that is close to none may be new: the build decides.
    """
    if selected.endswith(SELECTION_FILES):
        return
    known = {test.overload.partition(".")[0] for test in suite.operators}
    known |= {path.stem for pattern in files for path in source.glob(pattern)}
    wrong = []
    for word in dict.fromkeys(selected.split(",")):
        if fnmatch.filter(known, word):
            continue
        hint = near_match(word.strip("*"), known)
        if not set(word).isdisjoint("*?["):
            wrong.append(f"selected operators: no known operator matches '{word}'{hint}")
        elif hint:
            wrong.append(f"selected operators: '{word}' is not a known operator{hint}")
    if wrong:
        remedy = "Correct the name. Quote patterns: 'fft_*'. To select all operators: --select all"
        raise UsageError("\n".join(wrong), remedy=remedy)


def _context(
    project: Project, platform: str, requirements: Path, network: NetworkPlan
) -> dict[str, bytes]:
    context = {f"requirements-{platform}.txt": requirements.read_bytes()}
    if named := project.config.platforms[platform].recipe:
        context[DOCKERFILE] = _file(project, "recipe", platform, named).read_bytes()
    else:
        own = [f"platforms/{platform}.sh"]
        own += [DEVICES_REQUIREMENTS] if PLATFORMS[platform].devices else []
        files = [*RECIPE_FILES, *(name for name in own if (RECIPES / name).exists())]
        context |= {name: (RECIPES / name).read_bytes() for name in files}
    if network.ca_bundle is not None:
        context[CA_BUNDLE_IN_CONTEXT] = network.ca_bundle.read_bytes()
    return context


def _file(project: Project, key: str, platform: str, name: str) -> Path:
    """Return a file of the project, or one of this program."""
    for folder in (project.folder, PROGRAM_ROOT):
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(
        f"{project.path.name}: platforms.{platform}.{key}: got '{name}', expected a file"
        f" relative to {project.folder}"
    )
