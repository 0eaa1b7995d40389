"""Certificates, package indexes and the wheelhouse, as seen from this machine."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from requests.utils import should_bypass_proxies
from urllib3.exceptions import HTTPError

from ci.engines.checks import CHECK_S, REQUEST_S, Check, Finding, judge_clock, ok, problem, warning
from ci.engines.host.environment import missing_requirement, passed_variables
from ci.model.plan import NetworkPlan, RunPlan
from ci.plan.network import is_without_index
from ci.util.text import counted, join_names, mask_credentials, root_cause

INDEX = "package index"
PYPI = "https://pypi.org/simple"
PROBED = "pip"  # a package that every index has
ARCHIVES = ("*.whl", "*.tar.gz", "*.zip")
CA_REMEDY = "Name a PEM file with this site's certificates: ca_bundle in ci.site.yaml, or PIP_CERT."
INDEX_REMEDY = (
    "Name this site's mirror, proxy and CA bundle in ci.site.yaml (network:), or in PIP_INDEX_URL,"
    " HTTPS_PROXY and PIP_CERT."
)


FILL_REMEDY = "Fill it: pip download --dest {} --requirement FILE"
PIP_S = 60.0  # pip reads the metadata of each wheel; with torch's 3 s


def network_checks(network: NetworkPlan, plans: Sequence[RunPlan] = ()) -> Iterator[Check]:
    """Yield the checks of a site's network settings, as ``plans`` need them."""
    lacking = cache(partial(lacking_requirements, network, plans))
    if (bundle := network.ca_bundle) is not None:
        yield Check("CA bundle", lambda: [judge_ca_bundle(bundle)])
    urls = index_urls(network.host_environment)
    folders = [url for url in urls if url.startswith(("file:", "/"))]
    for url in urls:
        if url not in folders:
            look = partial(index_findings, url, network, lacking)
            yield Check(INDEX, look, limit_s=CHECK_S + PIP_S)
    if folders:
        yield Check(INDEX, lambda: map(judge_index_folder, folders))
    if (folder := network.wheelhouse) is not None:
        yield Check("wheelhouse", lambda: [judge_wheelhouse(folder)])
    if is_without_index(network.host_environment):
        yield Check(INDEX, lambda: [judge_no_index(network, lacking())], limit_s=PIP_S)


def index_urls(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the package indexes that pip uses, then its pages of links."""
    indexes = []
    if not is_without_index(environment):
        indexes = [environment.get("PIP_INDEX_URL", PYPI)]
        indexes += environment.get("PIP_EXTRA_INDEX_URL", "").split()
    found = [f"{url.rstrip('/')}/{PROBED}/" for url in indexes]
    links = environment.get("PIP_FIND_LINKS", "").split()
    pages = [url for url in links if url.startswith(("http://", "https://"))]
    return (*found, *pages)


def judge_index_folder(url: str) -> Finding:
    """Judge an index that is a folder of this machine; pip in a container cannot read it."""
    path = Path(unquote(urlsplit(url).path)).parent
    if path.is_dir():
        return ok(INDEX, f"{path} is a folder of this machine, which no container sees")
    expected = "the folder of an index: pip continues without it"
    return warning(INDEX, f"{path} is not there", expected=expected, remedy=INDEX_REMEDY)


def lacking_requirements(network: NetworkPlan, plans: Sequence[RunPlan]) -> Mapping[str, str]:
    """Return what the wheelhouse alone lacks, by platform; a run needs an index for it."""
    if network.wheelhouse is None:
        return {plan.platform: "there is no folder of wheels (pip_find_links)" for plan in plans}
    answers = {
        plan.host: missing_requirement(
            plan, network.wheelhouse, {**passed_variables(plan), **network.host_environment}
        )
        for plan in plans
    }
    return {plan.platform: text for plan in plans if (text := answers[plan.host])}


def judge_no_index(network: NetworkPlan, lacking: Mapping[str, str]) -> Finding:
    """Judge a site without an index, where every requirement comes from the folder of wheels."""
    if not lacking:
        return ok(INDEX, f"pip uses none; {network.wheelhouse} has every requirement")
    found = "; ".join(f"{platform}: {text}" for platform, text in lacking.items())
    return problem(
        INDEX,
        f"pip uses none, and cannot install the requirements: {found}",
        expected="each requirement in the folder of wheels",
        remedy=FILL_REMEDY.format(network.wheelhouse or "FOLDER"),
    )


def index_findings(
    url: str, network: NetworkPlan, lacking: Callable[[], Mapping[str, str]]
) -> Iterator[Finding]:
    """Send a HEAD request, through the site's proxy and with its certificates.

    An index that cannot be reached is no problem if the run needs none.
    """
    settings = network.host_environment
    bypass = should_bypass_proxies(url, no_proxy=settings.get("no_proxy"))
    proxies = {name: settings.get(f"{name}_proxy", "") for name in ("http", "https")}
    trusted = urlsplit(url).hostname in settings.get("PIP_TRUSTED_HOST", "").split()
    try:
        with requests.Session() as session:
            session.trust_env = False  # the settings have been read, in their order of precedence
            response = session.head(
                url,
                proxies={} if bypass else {name: proxy for name, proxy in proxies.items() if proxy},
                verify=not trusted and str(network.ca_bundle or True),
                timeout=REQUEST_S,
                allow_redirects=True,
            )
    except (requests.RequestException, HTTPError) as error:
        found = f"{mask_credentials(url)} cannot be reached from this machine: {root_cause(error)}"
        if network.wheelhouse and not lacking():
            what = f"but {network.wheelhouse} has every requirement"
            yield ok(INDEX, f"{found}; {what}. To ask no index at all: pip_no_index: true")
        else:
            yield problem(INDEX, found, remedy=INDEX_REMEDY)
        return
    arrived = datetime.now(UTC)
    yield judge_index(url, response.status_code)
    if date := response.headers.get("Date"):
        subject = f"clock of {urlsplit(url).hostname}"
        yield judge_clock(subject, parsedate_to_datetime(date), arrived)


def judge_index(url: str, status: int) -> Finding:
    """Judge an index's answer; 404 is fine: the index lacks only the probed package."""
    shown = mask_credentials(url)
    if status < 400 or status == 404:
        return ok(INDEX, f"{shown} answers ({status})")
    denied = "Its user name or password is wrong or missing." if status in (401, 403, 407) else None
    found = f"{shown} answers {status}"
    return problem(INDEX, found, expected="200", remedy=denied or INDEX_REMEDY)


def judge_ca_bundle(path: Path) -> Finding:
    """Judge the file of certificates that a site trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as error:
        found = f"{path} cannot be loaded: {error}"
        return problem("CA bundle", found, expected="PEM", remedy=CA_REMEDY)
    return judge_certificates(path, context.get_ca_certs(), datetime.now(UTC))


def judge_certificates(
    path: Path, certificates: Sequence[Mapping[str, Any]], now: datetime
) -> Finding:
    """Judge the certificates of a bundle as ``ssl`` describes them."""
    if not certificates:
        found = f"{path} holds no certificate of an authority"
        return problem("CA bundle", found, expected="at least one", remedy=CA_REMEDY)
    expired = [
        _common_name(certificate)
        for certificate in certificates
        if ssl.cert_time_to_seconds(certificate["notAfter"]) < now.timestamp()
    ]
    found = f"{path}: {counted(len(certificates), 'certificate')}"
    if not expired:
        return ok("CA bundle", f"{found}, none of them expired")
    found = f"{found}, {len(expired)} of them expired: {join_names(expired)}"
    # Every system's bundle has some expired ones; the check of the index decides.
    if len(expired) < len(certificates):
        return ok("CA bundle", found)
    return problem("CA bundle", found, expected="at least one that is valid", remedy=CA_REMEDY)


def judge_wheelhouse(folder: Path) -> Finding:
    """Judge the folder that is served to containers."""
    count = sum(1 for pattern in ARCHIVES for _ in folder.glob(pattern))
    if count:
        return ok("wheelhouse", f"{folder}: {counted(count, 'archive')}")
    return warning(
        "wheelhouse",
        f"{folder} holds no archive",
        expected=" or ".join(ARCHIVES),
        remedy=FILL_REMEDY.format(folder),
    )


def _common_name(certificate: Mapping[str, Any]) -> str:
    named = dict(pair for part in certificate["subject"] for pair in part)
    names = (named.get(key) for key in ("commonName", "organizationalUnitName", "organizationName"))
    return next((str(name) for name in names if name), "without a name")
