"""The address of a Docker Engine, and a connection that is restored when it is lost."""

from __future__ import annotations

import json
import os
import re
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from json import JSONDecodeError
from pathlib import Path
from time import monotonic, sleep
from typing import Any, ClassVar, TypeVar

from docker.api.client import APIClient
from docker.client import DockerClient
from docker.constants import DEFAULT_TIMEOUT_SECONDS
from docker.errors import APIError, DockerException, StreamParseError, TLSParameterError
from docker.tls import TLSConfig
from docker.utils import kwargs_from_env, parse_host
from urllib3.exceptions import HTTPError

import docker
from ci.engines import Observer, say, typed_errors
from ci.engines.docker.remote import RemoteMachine, SocketForward
from ci.engines.docker.watch import PING_S, Watch
from ci.errors import ConfigError, InfrastructureError
from ci.model.plan import EnginePlan
from ci.util.invocation import command
from ci.util.text import mask_credentials, near_match

# Values of an engine's answers that this program reads, and their kinds.
VERSION = {"Version": str, "ApiVersion": str, "Arch": str}
INFO = {
    **dict.fromkeys(("ID", "Name", "ServerVersion", "Architecture", "DockerRootDir"), str),
    "SystemTime": str,
    "NCPU": int,
    "MemTotal": int,
}
LONG_TIMEOUT_S = 24 * 3600  # only a guard: some GB take minutes
CONNECT_TIMEOUT_S = 20  # for the first answers; an engine under full load needed 4 s

LOCAL = "unix:///var/run/docker.sock"
ENGINE_VARIABLE = "CONTAINER_ENGINE"  # the command with which docker/make-base-image imports
DEFAULT_CONTEXT = "default"  # the docker command's name for no context


@dataclass(frozen=True, kw_only=True)
class EngineProduct:
    """A program that answers the requests of the Docker SDK, as messages name it.

    Attributes:
        name: in sentences
        command: its command, in remedies
        variable: the variable with an address, for its command
        oldest: the oldest version that this program is tested with
        start: the remedy if none answers at a socket of this machine
        access: the remedy if the user may not connect to it
    """

    name: str
    command: str
    variable: str
    oldest: tuple[int, int]
    start: str
    access: str


DOCKER = EngineProduct(
    name="Docker Engine",
    command="docker",
    variable="DOCKER_HOST",
    oldest=(20, 10),
    start="start one with docker/start-engine, or use --engine host",
    access="join the group that owns the engine's socket (docker), or use --engine host",
)


@dataclass(frozen=True, kw_only=True)
class EngineAddress:
    """The address of an engine, and the variables that direct the docker command to it.

    ``named_by`` is the setting that names the engine; ``None`` is the default, the local socket.
    """

    url: str
    environment: Mapping[str, str]
    named_by: str | None = None
    tls: TLSConfig | None = field(default=None, repr=False)


def find_address(plan: EnginePlan, environ: Mapping[str, str]) -> EngineAddress:
    """Return the address of the plan's engine; raises ``ConfigError`` for an unknown context."""
    if plan.docker_host is not None:
        return _address_by_url(plan.docker_host, environ, f"engine {plan.name}")
    if plan.context is not None:
        return _address_by_context(plan.context, environ, f"engine {plan.name}")
    if url := environ.get("DOCKER_HOST"):
        return _address_by_url(url, environ, "DOCKER_HOST")
    folder = _configuration_folder(environ)
    if name := environ.get("DOCKER_CONTEXT"):
        return _address_by_context(name, environ, "DOCKER_CONTEXT")
    if name := _read_json(folder / "config.json").get("currentContext"):
        return _address_by_context(name, environ, f"currentContext of {folder / 'config.json'}")
    return EngineAddress(url=LOCAL, environment={})


def _address_by_url(url: str, environ: Mapping[str, str], named_by: str) -> EngineAddress:
    # The variables are for TCP only; the SDK would look for their files at any address.
    try:
        tls = kwargs_from_env(environ).get("tls") if url.startswith("tcp://") else None
    except TLSParameterError as error:
        remedy = "Correct DOCKER_CERT_PATH, or unset it and DOCKER_TLS_VERIFY."
        raise ConfigError(f"{named_by}: {error}", remedy=remedy) from error
    return EngineAddress(url=url, environment={"DOCKER_HOST": url}, named_by=named_by, tls=tls)


def _address_by_context(name: str, environ: Mapping[str, str], named_by: str) -> EngineAddress:
    if name == DEFAULT_CONTEXT:
        return EngineAddress(url=LOCAL, environment={"DOCKER_HOST": LOCAL})
    # The SDK finds no context without a config.json, which only a login or `docker context use`
    # creates.
    store = _configuration_folder(environ) / "contexts"
    known = {
        str(found["Name"]): found
        for path in store.glob("meta/*/meta.json")
        if (found := _read_json(path))
    }
    if name not in known:
        names = ", ".join([DEFAULT_CONTEXT, *sorted(known)])
        raise ConfigError(
            f"{named_by}: unknown Docker context '{name}', expected one of {names}"
            + near_match(name, known),
            remedy=f"docker context create {name} --docker host=ssh://USER@HOST",
        )
    endpoint = known[name]["Endpoints"]["docker"]
    return EngineAddress(
        url=endpoint["Host"],
        environment={"DOCKER_CONTEXT": name, "DOCKER_HOST": ""},  # a set DOCKER_HOST would win
        named_by=f"context {name}",
        tls=_context_tls(store / "tls" / sha256(name.encode()).hexdigest() / "docker", endpoint),
    )


def _context_tls(folder: Path, endpoint: Mapping[str, Any]) -> TLSConfig | None:
    if not folder.is_dir():
        return None
    certificate, key, authority = (
        str(path) if (path := folder / name).exists() else None
        for name in ("cert.pem", "key.pem", "ca.pem")
    )
    return TLSConfig(
        client_cert=(certificate, key) if certificate and key else None,
        ca_cert=authority,
        verify=not endpoint.get("SkipTLSVerify", False),
    )


def _configuration_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the docker command's settings."""
    return Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _read_json(path: Path) -> Mapping[str, Any]:
    """Read a JSON file of the docker command; a missing file is empty."""
    try:
        content: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}", remedy="Correct or remove the file.") from error
    return content


# The SDK's own errors, and those that it does not catch when the connection is lost.
SDK_ERRORS = (DockerException, StreamParseError, HTTPError, OSError)

_QUERY = re.compile(r"(?<=\?)\S+")
_FULL = re.compile("no space left on device|disk quota exceeded", re.IGNORECASE)


def explain(error: Exception) -> str:
    """Return why a request failed, without its query, which holds a build's arguments."""
    if isinstance(error, APIError) and error.explanation:
        return str(error.explanation)
    return _QUERY.sub("…", str(error))


def lacks_permission(error: BaseException | None) -> bool:
    """Tell whether an error, or one that led to it, is a missing permission."""
    while error is not None and not isinstance(error, PermissionError):
        error = error.__context__
    return error is not None


def is_connection_lost(error: Exception) -> bool:
    """Tell whether the connection was lost; False if the engine or this machine failed."""
    if isinstance(error, APIError):
        return False
    # The SDK's libraries raise an OSError without a number.
    local = isinstance(error, OSError) and error.errno is not None
    return not local or isinstance(error, ConnectionError)


class EngineAnswerError(InfrastructureError):
    """What answers at the address of an engine is none, or is broken."""


def answer_error(place: str, why: object) -> EngineAnswerError:
    """Return the error for an answer that no engine gives."""
    message = f"what answers as {place} is broken, or is no Docker Engine: {why}"
    return EngineAnswerError(message, remedy="check its address and its log, or restart it")


# What code raises that reads an answer of another form than an engine's.
BAD_ANSWERS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
SDK_FOLDER = str(Path(docker.__file__).parent)


def bad_answer(error: BaseException | None) -> BaseException | None:
    """Return the error, or its cause, with which the SDK failed to read an answer.

    An error of the same kind outside of the SDK is a fault of this program.
    """
    while error is not None:
        # The others are wrong addresses and lost connections.
        is_answer = isinstance(error, JSONDecodeError) or not isinstance(error, OSError | HTTPError)
        if isinstance(error, BAD_ANSWERS) and is_answer:
            frames = traceback.extract_tb(error.__traceback__)
            if any(frame.filename.startswith(SDK_FOLDER) for frame in frames):
                return error
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def typed_bad_answers(place: str) -> Iterator[None]:
    """Raise ``EngineAnswerError`` for an answer that the SDK cannot read."""
    try:
        yield
    except BAD_ANSWERS as error:
        if why := bad_answer(error):
            raise answer_error(place, why) from error
        raise


@contextmanager
def typed_reasons(place: str) -> Iterator[None]:
    """Raise errors of the SDK as ``InfrastructureError`` with nothing but their reason."""
    try:
        with typed_bad_answers(place):
            yield
    except SDK_ERRORS as error:
        raise InfrastructureError(explain(error)) from error


def read_facts(place: str, answer: object, expected: Mapping[str, type]) -> Mapping[str, Any]:
    """Return an engine's answer; raises ``EngineAnswerError`` if it lacks an expected value."""
    if not isinstance(answer, Mapping):
        raise answer_error(place, f"got {answer!r:.80}, expected an object")
    for name, kind in expected.items():
        if type(value := answer.get(name)) is not kind:
            raise answer_error(place, f"{name}: got {value!r:.80}, expected a {kind.__name__}")
    return answer


@contextmanager
def typed_sdk_errors(place: str, product: EngineProduct = DOCKER) -> Iterator[None]:
    """Turn errors of the SDK, the connection and the disk into typed ones."""
    remedy = f"check `{product.command} info` and the engine's log, then run again"
    try:
        with (
            typed_errors(f"the run on {place}", *SDK_ERRORS, remedy=remedy, explain=explain),
            typed_bad_answers(place),
        ):
            yield
    except InfrastructureError as error:
        if not _FULL.search(str(error)):
            raise
        here = isinstance(error.__cause__, OSError) and error.__cause__.errno is not None
        machine = "this machine" if here else place
        raise InfrastructureError(
            f"the disk of {machine} is full: {error}",
            remedy=f"make room: {command('gc')} removes leftovers of earlier runs",
        ) from error


RECONNECT_S = 60.0  # for an engine that restarts, or a network that is down for a moment
RETRY_S = 1.0  # between attempts to reach it again
MOST_RETRIES = 20  # of one request; after these the next lost connection is an error

ELSEWHERE_REMEDY = (
    "check the address, the network, and whether an engine runs there, or use --engine host"
)

Result = TypeVar("Result")


class Link:
    """A Docker client with its connection to the engine, by ssh for a remote one.

    ``place`` names the engine in messages; ``environment`` directs its command to it.
    """

    product: ClassVar = DOCKER
    client_type: ClassVar[type[DockerClient]] = DockerClient

    def __init__(self, plan: EnginePlan) -> None:
        """Connect to the engine of ``plan``; raises ``InfrastructureError`` if none answers."""
        self.address = self.find_address(plan)
        command_variable = {ENGINE_VARIABLE: self.product.command}
        self.environment = {**command_variable, **self.address.environment}
        self.machine: RemoteMachine | None = None
        self._forward: SocketForward | None = None
        self._url = self.address.url
        shown = mask_credentials(self._url)
        self.place = f"the {self.product.name} at {shown}"
        with ExitStack() as undo:
            if self._url.startswith("ssh://"):
                self.machine = RemoteMachine.parse(self._url, os.environ)
                self._forward = SocketForward(self.machine, self.machine.engine_socket)
                undo.callback(self._forward.close)
                self._url = f"unix://{self._forward.socket}"
                self.environment = {**command_variable, self.product.variable: self._url}
            try:
                self._restart_ssh()
                _check_socket(self._url)
                self._tls = self.address.tls or False
                self.client = self.client_type(
                    base_url=self._url, tls=self._tls, timeout=CONNECT_TIMEOUT_S
                )
                answer = self.client.version()
                self.client.api.timeout = DEFAULT_TIMEOUT_SECONDS
            except (*SDK_ERRORS, *BAD_ANSWERS) as error:
                if bad := bad_answer(error):
                    raise answer_error(self.place, bad) from error
                if isinstance(refusal := error.__cause__ or error.__context__, APIError):
                    raise answer_error(self.place, explain(refusal)) from error
                if not isinstance(error, SDK_ERRORS):
                    raise
                found = self.machine.missing_engine() if self.machine else None
                why, remedy = found or (explain(error), self._remedy(error))
                message = f"no {self.product.name} answers at {shown}: {why}"
                raise InfrastructureError(message, remedy=remedy) from error
            undo.callback(self.client.close)
            self.version: str = read_facts(self.place, answer, VERSION)["Version"]
            self.watch = Watch(self.place, self.client.api, self._second_client)
            self._closing = undo.pop_all()

    @staticmethod
    def find_address(plan: EnginePlan) -> EngineAddress:
        """Return the address of the plan's engine."""
        return find_address(plan, os.environ)

    def typed_errors(self) -> AbstractContextManager[None]:
        """Turn errors of the engine into typed ones."""
        return typed_sdk_errors(self.place, self.product)

    def close(self) -> None:
        """Close the connection."""
        self._closing.close()

    def info(self) -> Mapping[str, Any]:
        """Return what the engine reports of itself, at least the values of ``INFO``."""
        with self.typed_errors():
            facts = read_facts(self.place, self.client.info(), INFO)
        try:
            datetime.fromisoformat(facts["SystemTime"])
        except ValueError as error:
            raise answer_error(self.place, f"SystemTime: {error}") from error
        return facts

    def _remedy(self, error: BaseException | None) -> str:
        """Return the remedy for a missing permission, or for a missing engine."""
        if lacks_permission(error):
            return self.product.access
        return self.product.start if self.address.url.startswith("unix://") else ELSEWHERE_REMEDY

    def _second_client(self) -> APIClient:
        """Return a client that gives up soon, with a connection of its own."""
        version = self.client.api.api_version
        return APIClient(base_url=self._url, version=version, tls=self._tls, timeout=PING_S)

    @contextmanager
    def session(self, observer: Observer) -> Iterator[None]:
        """Turn the engine's errors into typed ones.

        The observer gets a message whenever the engine does not answer for some seconds.
        """
        with self.typed_errors(), self.watch.reporting_to(observer):
            self._restart_ssh()
            yield

    def retry(self, action: Callable[[], Result], observer: Observer) -> Result:
        """Return the result of ``action``, which is repeated after each lost connection.

        Raises the error of ``action`` if the engine answered with it, or if the engine can no
        longer be reached.
        """
        for _ in range(MOST_RETRIES):
            try:
                return action()
            except SDK_ERRORS as error:
                if not is_connection_lost(error) or not self._reconnect(error, observer):
                    raise
        return action()

    def _reconnect(self, error: Exception, observer: Observer) -> bool:
        why = explain(error)
        lost = f"lost the connection to {self.place}: {why}"
        say(observer, f"{lost}; trying again for {RECONNECT_S:g} s")
        deadline = monotonic() + RECONNECT_S
        while monotonic() < deadline:
            sleep(RETRY_S)
            with suppress(InfrastructureError, *SDK_ERRORS):
                self._restart_ssh()
                _check_socket(self._url)
                self.client.ping()
                say(observer, f"reached {self.place} again")
                return True
        return False

    def _restart_ssh(self) -> None:
        """Start ssh again if it has ended; the socket and the client stay the same."""
        if self._forward is not None and not self._forward.alive():
            self._forward.start()


def _check_socket(url: str) -> None:
    """Connect to a local engine's socket and close it; raises ``OSError`` with its path.

    The SDK never closes a socket that it could not connect, and Python warns of it.
    """
    scheme, _, path = str(parse_host(url)).partition("://")
    if scheme != "http+unix":
        return
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error


@contextmanager
def long_timeout(client: DockerClient) -> Iterator[None]:
    """Use a long timeout: an engine reads all of an image or archive before its first answer."""
    usual, client.api.timeout = client.api.timeout, LONG_TIMEOUT_S
    try:
        yield
    finally:
        client.api.timeout = usual


def is_local(info: Mapping[str, Any]) -> bool:
    """Tell whether an engine runs on this machine: by its host name and its data folder."""
    return bool(info["Name"] == socket.gethostname() and Path(info["DockerRootDir"]).exists())
