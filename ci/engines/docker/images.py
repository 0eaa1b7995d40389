"""Container images: found by their content hash, or built, if need be without a registry."""

from __future__ import annotations

import json
import platform
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import IO, Any, cast

from docker.client import DockerClient
from docker.errors import APIError, ImageNotFound
from docker.models.images import Image
from docker.utils import parse_repository_tag
from filelock import FileLock, Timeout

from ci.engines.archives import pack
from ci.engines.docker.link import explain, is_local, long_timeout
from ci.engines.docker.wheelhouse import served
from ci.engines.logs import ImageLog
from ci.errors import InfrastructureError
from ci.model.execution import ImageFacts
from ci.model.plan import (
    BASE_IMAGE_INPUT,
    PLATFORM_LABEL,
    ImageArchive,
    ImagePlan,
    RunPlan,
    base_image_remedy,
)
from ci.plan.network import loopback_notes
from ci.util import process
from ci.util.files import RECIPES, user_cache
from ci.util.invocation import PROGRAM_NAME
from ci.util.lines import parse_object
from ci.util.text import mask_credentials

# The kernel's name of an architecture, and the name that images and engines use.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

LOADED = "from the bundle"
PRESENT = "from the bundle, already on the engine"
SPACE_FACTOR = 2  # the engine unpacks the archive before it extracts the layers

_CAUSE = re.compile(r"^ *(?:install-tools|make-environment): error: (.*)$", re.MULTILINE)
# Docker prints 12 digits of an id, Podman 11, or all of a cached one.
_STEP_RESULT = re.compile(r"^ ?---?> (?:Using cache )?([0-9a-f]{11})[0-9a-f]*$", re.MULTILINE)

# The labels of an image, beside that of its platform.
BASE_LABEL = "infini-ci.base-image"  # the image that it was really built on
BASE_DIGEST_LABEL = "infini-ci.base-digest"
INPUTS_LABEL = "infini-ci.inputs"  # digests only: values may hold passwords

Labels = Mapping[str, str]


# The stage of a recipe that installs Python, which a vendor's base image may lack.
SERVER_STAGE = "base"
_STAGE = re.compile(rf"^FROM\s.*\sAS\s+{SERVER_STAGE}\s*$", re.IGNORECASE | re.MULTILINE)


def server_stage(image: ImagePlan) -> str | None:
    """Return the stage from which the wheelhouse is served; ``None``: the base image itself."""
    recipe = image.context[image.dockerfile].decode(errors="replace")
    return SERVER_STAGE if _STAGE.search(recipe) else None


def image_labels(plan: RunPlan, base: str, base_digest: str) -> dict[str, str]:
    """Return the labels of an image."""
    return {
        PLATFORM_LABEL: plan.platform,
        BASE_LABEL: base,
        BASE_DIGEST_LABEL: base_digest,
        INPUTS_LABEL: json.dumps(dict(plan.needed_image.inputs), sort_keys=True),
    }


def reason_to_build(plan: RunPlan, others: Iterable[Labels]) -> str:
    """Return in what the platform's image differs from the most similar of its ``others``.

    These may be of another project or another clone: that is no change of this one.
    """
    wanted = plan.needed_image.inputs
    made_from = [inputs for labels in others if (inputs := _stated_inputs(labels))]
    if not made_from:
        return f"no image of platform {plan.platform} yet"
    changes = min((list(_differences(wanted, inputs)) for inputs in made_from), key=len)
    if not changes:
        return f"no image is tagged {plan.needed_image.tag}"
    return f"no image here is like it: the most similar one differs in {', '.join(changes)}"


def pinned_reference(image: Image, reference: str) -> str | None:
    """Return the reference of an image by the digest that its registry has; ``None``: none has it.

    The same image may come from several registries. Podman invents one for an image of none.
    """
    repository, _ = parse_repository_tag(reference)
    known: list[str] = image.attrs.get("RepoDigests") or []
    digests = sorted(it for it in known if not it.startswith("localhost/"))
    own = (it for it in digests if _full_name(it.partition("@")[0]) == _full_name(repository))
    return next(own, digests[0] if digests else None)


def _full_name(repository: str) -> str:
    """``docker.io/library/debian`` of ``debian``, which Docker and Podman name differently."""
    host, slash, _ = repository.partition("/")
    if slash and ({".", ":"} & {*host} or host == "localhost"):
        return repository
    return f"docker.io/{'' if slash else 'library/'}{repository}"


def _stated_inputs(labels: Labels) -> dict[str, str]:
    """Return the inputs in the labels of an image; empty if another program wrote them."""
    try:
        inputs = parse_object(labels.get(INPUTS_LABEL, "{}"))
    except ValueError:
        return {}
    return inputs if all(isinstance(value, str) for value in inputs.values()) else {}


def _differences(wanted: Mapping[str, str], other: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*wanted, *other}):
        if wanted.get(name) == other.get(name):
            continue
        if name == BASE_IMAGE_INPUT:
            yield f"{name} ({other.get(name)}, not {wanted.get(name)})"
        elif name not in other:
            yield f"{name} (it has none)"
        else:
            yield name if wanted.get(name) else f"{name} (none is needed)"


def check_architecture(client: DockerClient, image: Image | None = None) -> None:
    """Raise ``InfrastructureError`` if the engine cannot run ``image``.

    Without an image, check the one that this machine would build from its own packages.
    """
    if image is None:
        what = "an image made of this machine's packages would be"
        made_for = ARCHITECTURES.get(platform.machine(), platform.machine())
    else:
        what = f"image {image.tags[0] if image.tags else image.id} is"
        made_for = image.attrs["Architecture"]
    there = client.version()["Arch"]
    if made_for and made_for != there:  # a handmade image may not state it
        raise InfrastructureError(
            f"{what} for {made_for}, expected {there}, the architecture of the engine",
            remedy=f"Name a base image for {there}, or run the platform on another engine.",
        )


def build_lock(engine_id: str, say: Callable[[str], None]) -> AbstractContextManager[object]:
    """Lock image builds of this user on an engine, and report a wait.

    The lock ends with its holder.
    """
    cache = user_cache()
    cache.mkdir(parents=True, exist_ok=True)
    lock = FileLock(cache / f"build-{engine_id.replace(':', '')}.lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        say("waiting for another image build on this engine")
        return lock.acquire()


@dataclass(frozen=True)
class ImageBuilder:
    """Finds and builds images.

    ``info`` returns the engine's checked facts; ``environment`` directs the docker command to it.
    """

    client: DockerClient
    info: Callable[[], Mapping[str, Any]]
    environment: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, plan: RunPlan, log: ImageLog) -> ImageFacts:
        """Return the image of ``plan``; build it unless one with the same inputs exists."""
        start = monotonic()
        archive = plan.needed_image.archive
        if archive is not None:
            image, reason = self._load_bundled(plan.needed_image, archive, log)
        else:
            image, reason = self._find_or_build(plan, log)
        check_architecture(self.client, image)
        # The time of the tag records the last use of the image for gc.
        image.tag(plan.needed_image.tag)
        facts = self.facts(plan, str(image.id), reason)
        built = archive is None and reason != "cached"
        return replace(facts, built=built, seconds=monotonic() - start)

    def facts(self, plan: RunPlan, image_id: str, reason: str) -> ImageFacts:
        """Describe the image of a run, with its base image if its labels name it."""
        image = self.find(image_id)
        labels: Labels = image.labels if image else {}
        base = self.find(labels[BASE_DIGEST_LABEL]) if BASE_DIGEST_LABEL in labels else None
        return ImageFacts(
            reference=plan.needed_image.tag,
            digest=image_id,
            built=False,
            seconds=0.0,
            reason=reason,
            base=labels.get(BASE_LABEL),
            base_digest=labels.get(BASE_DIGEST_LABEL),
            base_pinned=pinned_reference(base, labels.get(BASE_LABEL, "")) if base else None,
        )

    def _find_or_build(self, plan: RunPlan, log: ImageLog) -> tuple[Image, str]:
        """Return the image, and the reason for its build or ``cached``."""
        reason = self.build_reason(plan)
        if reason is not None:
            # Without the lock: a pull takes long, and other runs need not wait for it.
            self._pull_base(plan, log)
            with build_lock(self.info()["ID"], log.write):
                reason = self.build_reason(plan)  # another run may have built it meanwhile
                if reason is not None:
                    log.write(f"building {plan.needed_image.tag}: {reason}")
                    self._build(plan, self._base(plan, log), log)
        return self.client.images.get(plan.needed_image.tag), reason or "cached"

    def build_reason(self, plan: RunPlan) -> str | None:
        """Return why the image has to be built; ``None`` if it exists."""
        image = self.find(plan.needed_image.tag)
        if image is None:
            label = f"{PLATFORM_LABEL}={plan.platform}"
            # The API's own list: the SDK's asks for each image again, which may be gone by then.
            others = self.client.api.images(filters={"label": label})
            return reason_to_build(plan, (other["Labels"] for other in others))
        if BASE_DIGEST_LABEL not in image.labels:
            return "the image does not record its base image"
        # The base that was used may be gone; the configured base may have arrived meanwhile.
        for reference in (plan.needed_image.base_image, image.labels.get(BASE_LABEL)):
            base = self.find(reference) if reference else None
            if base is not None:
                same = image.labels.get(BASE_DIGEST_LABEL) == base.id
                return None if same else f"base image {reference} is now {base.id}"
        return None

    def find(self, reference: str) -> Image | None:
        """Return a local image, or None."""
        try:
            return self.client.images.get(reference)
        except ImageNotFound:
            return None

    def inspect(self, image_id: str) -> tuple[int, tuple[str, ...]]:
        """Return the size of an image in bytes, and the digests of its layers."""
        attributes = self.client.images.get(image_id).attrs
        return attributes["Size"], tuple(attributes["RootFS"]["Layers"])

    def save(self, image_id: str) -> Iterator[bytes]:
        """Return an image in the format of ``docker save``, without a tag."""
        with long_timeout(self.client):
            chunks: Iterator[bytes] = self.client.api.get_image(image_id)
        return chunks

    def notes(self, plan: RunPlan, image_id: str | None = None) -> tuple[str, ...]:
        """Return what a reader of the results must know about the image."""
        image = self.find(image_id or plan.needed_image.tag)
        base = image.labels.get(BASE_LABEL) if image else None
        wanted = plan.needed_image.base_image
        if base in (None, wanted) or base != plan.needed_image.offline_base_image:
            return ()
        return (f"base image {wanted} could not be pulled; built on an offline Debian base",)

    def _load_bundled(
        self, plan: ImagePlan, archive: ImageArchive, log: ImageLog
    ) -> tuple[Image, str]:
        """Return the image of a bundle, and whether it was loaded or already there."""
        for reference in (archive.id, plan.tag):
            with suppress(ImageNotFound):
                if _matches(image := self.client.images.get(reference), archive):
                    return image, PRESENT
        info = self.info()
        if is_local(info):  # a remote engine reports a full disk itself, later
            folder = str(info["DockerRootDir"])
            needed, free = SPACE_FACTOR * archive.size, shutil.disk_usage(folder).free
            if free < needed:
                raise InfrastructureError(
                    f"{folder}: got {free:,} bytes free, expected {needed:,} to load the image",
                    remedy="Make room: docker system df shows what uses the disk.",
                )
        log.write(f"loading {plan.tag} from {archive.bundle}")
        with tarfile.open(archive.bundle, mode="r:") as members:
            content = cast(IO[bytes], members.extractfile(archive.member))
            with long_timeout(self.client):
                images = self.client.images.load(content)
        for image in images:
            if _matches(image, archive):
                return image, LOADED
        got = ", ".join(str(image.id) for image in images) or "no image"
        raise InfrastructureError(
            f"{archive.bundle}: the engine loaded {got}, expected image {archive.id}",
            remedy=f"Make the bundle again with `{PROGRAM_NAME} bundle`, and copy it here.",
        )

    def _pull_base(self, plan: RunPlan, log: ImageLog) -> None:
        """Pull a missing base image; refuse an unusable one before waiting for other builds."""
        image, reference = plan.needed_image, plan.needed_image.base_image
        if reference != image.offline_base_image and self.find(reference) is None:
            log.write(f"pulling {reference}")
            repository, tag = parse_repository_tag(reference)
            try:
                # Without a tag the engine would pull all tags.
                pull = self.client.api.pull(repository, tag or "latest", stream=True, decode=True)
                for message in pull:
                    if "progressDetail" not in message:  # a line per layer, not per kilobyte
                        log.write(_message_text(message))
            except APIError as error:
                log.write(f"cannot pull {reference}: {explain(error)}")
        if base := self.find(reference):
            check_architecture(self.client, base)
        elif image.offline_base_image is None:
            raise InfrastructureError(
                f"base image {reference} is not on the engine and cannot be pulled{log.tail()}",
                remedy=f"{base_image_remedy(plan.platform, image)}; the log is {log.path}",
            )

    def _base(self, plan: RunPlan, log: ImageLog) -> str:
        """Return the configured base image, or else the offline one, built if it is missing."""
        image = plan.needed_image
        offline, command = image.offline_base_image, image.offline_base_command
        if offline is None or command is None or self.find(image.base_image):
            return image.base_image
        if self.find(offline) is None:
            check_architecture(self.client)
            environment = {**process.inherited_environment(), **self.environment}
            process.run(
                [*command, offline], cwd=RECIPES.parent, environment=environment, on_line=log.write
            )
        return offline

    def _build(self, plan: RunPlan, base: str, log: ImageLog) -> None:
        image, server = plan.needed_image, base
        steps: set[str] = set()
        try:
            if plan.network.wheelhouse and (stage := server_stage(image)):
                server = self._build_recipe(plan, base, log, steps, target=stage)
            with served(self.client, plan, server) as network_mode:
                labels = image_labels(plan, base, str(self.client.images.get(base).id))
                options = {"tag": image.tag, "labels": labels, "network_mode": network_mode}
                self._build_recipe(plan, base, log, steps, **options)
        finally:
            if any(mask_credentials(text) != text for text in image.build_arguments.values()):
                self._remove_stages(steps)

    def _build_recipe(
        self, plan: RunPlan, base: str, log: ImageLog, steps: set[str], **options: Any
    ) -> str:
        """Build a recipe; return the id of its image, and add the short ids of all steps."""
        image = plan.needed_image
        messages = self.client.api.build(
            fileobj=pack(image.context),
            custom_context=True,
            dockerfile=image.dockerfile,
            buildargs={**image.build_arguments, "BASE_IMAGE": base},
            rm=True,
            forcerm=True,
            decode=True,
            **options,
        )
        built, failed = "", False
        # Read to the end even after an error: this closes the connection.
        for message in messages:
            log.write(_message_text(message))
            steps.update(_STEP_RESULT.findall(_message_text(message)))
            failed |= "error" in message
            built = message.get("aux", {}).get("ID", built)
        if failed:
            causes = _CAUSE.findall(log.tail())  # the recipe's own message; a row has one line
            raise InfrastructureError(
                f"image {image.tag} of platform {plan.platform} cannot be built"
                + "".join(f": {cause}" for cause in causes[-1:])
                + log.tail(),
                remedy="; ".join(
                    [*loopback_notes(plan.network.environment), f"the whole log is {log.path}"]
                ),
            )
        return built

    def _remove_stages(self, ids: set[str]) -> None:
        """Remove the images of the build's earlier stages.

        Their history holds the build's arguments, passwords included. Without passwords the
        images stay: the next build of a changed recipe reuses their unchanged layers.
        """
        for name in self.client.api.images(quiet=True, filters={"dangling": True}):
            if name.removeprefix("sha256:")[:11] in ids:
                with suppress(ImageNotFound):  # another build of the same recipe has removed it
                    self.client.api.remove_image(name)


def _message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a build or pull message of any kind."""
    words = (message.get(key) for key in ("stream", "status", "error"))
    return " ".join(str(word) for word in words if word)


def _matches(image: Image, archive: ImageArchive) -> bool:
    """Compare ids or layers: engines that store images in containerd have other ids."""
    return image.id == archive.id or tuple(image.attrs["RootFS"]["Layers"]) == archive.layers
