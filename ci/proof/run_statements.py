"""Makes the statements about a run: pure, from its evidence and the decision of the gate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from ci.errors import UsageError
from ci.model.decision import Decision, GateVerdict
from ci.model.outcomes import Outcome
from ci.model.results import Distribution, RunResult
from ci.model.verdicts import Harness, Product
from ci.proof.evidence import FileDigest, PlatformEvidence, RunEvidence
from ci.proof.statements import (
    BUILD_TYPE,
    DECIDED,
    GATE_PASSED,
    PLATFORM,
    SLSA_VERSION,
    BuildDefinition,
    BuildMetadata,
    BuildProvenance,
    DigestSet,
    ResourceDescriptor,
    RunDetails,
    StatedIdentity,
    StatedResult,
    StatedTests,
    Statement,
    VerificationSummary,
)

SUMMARY_FILE = "verification-summary.json"
TESTS_SUFFIX = ".test-result.json"
PROVENANCE_SUFFIX = ".provenance.json"
_IMAGE_DIGEST = re.compile(r"(?:.*@)?sha256:([0-9a-f]{64})")
# What an expected failure says of the product depends on the reason for it.
WARNED = (Outcome.XFAILED, Outcome.XPASSED)


def run_statements(
    evidence: RunEvidence, identity: str, *, decided: bool = False
) -> dict[str, Statement]:
    """Return the test results and the provenance of a run, by the names of their files.

    ``identity`` is the URI of the builder. ``decided``: a verification summary goes with them, so
    that no one can leave it out later.
    """
    made = {}
    for platform in evidence.platforms:
        name = platform.result.platform
        made[f"{name}{TESTS_SUFFIX}"] = _tests(evidence, platform, decided=decided)
        for it in platform.distributions:
            if not it.given:  # another builder made those
                provenance = _provenance(evidence, platform, it, identity)
                made[f"{name}.{it.name}{PROVENANCE_SUFFIX}"] = provenance
    return made


def summary_statement(
    evidence: RunEvidence, decision: Decision, inputs: Mapping[str, str], identity: str
) -> Statement:
    """Return the decision of the gate about a run.

    ``inputs`` are the other files with statements about the run, and the SHA-256 of each.
    ``identity`` is the URI of the verifier. Raises ``UsageError`` if the decision is about other
    runs, or about other results of this one.
    """
    run = evidence.run
    judged = _judged_platforms(evidence, decision)
    is_go = decision.verdict is GateVerdict.GO
    version = decision.tag or decision.commit or run.run_id
    product = f"pkg:generic/{quote(run.project, safe='')}@{quote(version, safe='')}"
    kept = dict.fromkeys(
        (it.path or it.name, it.sha256)
        for of in evidence.platforms
        if of.result.platform in judged
        for it in of.distributions
    )
    subject = [_file(FileDigest(path=path, sha256=sha256)) for path, sha256 in kept]
    return Statement(
        subject=(*subject, _results(evidence)),
        predicate=VerificationSummary(
            verifier=StatedIdentity(id=identity),
            time_verified=decision.decided_at,
            resource_uri=product,
            policy=ResourceDescriptor(
                uri=f"{product}#release-policy", digest=DigestSet(sha256=decision.policy_sha256)
            ),
            input_attestations=tuple(
                ResourceDescriptor(uri=quote(name), digest=DigestSet(sha256=sha256))
                for name, sha256 in inputs.items()
            ),
            verification_result=StatedResult.PASSED if is_go else StatedResult.FAILED,
            verified_levels=(GATE_PASSED if is_go else StatedResult.FAILED,),
            slsa_version=SLSA_VERSION,
            decision=decision,
        ),
    )


def _judged_platforms(evidence: RunEvidence, decision: Decision) -> Sequence[str]:
    """The platforms whose results in this run the decision is about."""
    run_id = evidence.run.run_id
    decided = {it.run_id: it for it in decision.runs}
    remedy = "Decide again with `gate`, or name the decision about this run with --decision."
    if run_id not in decided:
        got = f"got a decision about {', '.join(decided) or 'no run'}"
        raise UsageError(f"attest: {got}, expected one about {run_id}", remedy=remedy)
    if decided[run_id].sha256 != evidence.results.sha256:
        message = f"attest: the decision is about other results of run {run_id}"
        raise UsageError(f"{message} than its present results.json", remedy=remedy)
    return decided[run_id].platforms


def _tests(evidence: RunEvidence, platform: PlatformEvidence, *, decided: bool) -> Statement:
    def named(*outcomes: Outcome) -> tuple[str, ...]:
        return tuple(it.node_id for it in platform.tests if it.outcome in outcomes)

    installed = [it for it in platform.distributions if it.installed]
    predicate = StatedTests(
        result=stated_result(platform),
        configuration=(*map(_file, platform.configuration), *_image(platform)),
        passed_tests=named(Outcome.PASSED),
        warned_tests=named(*WARNED),
        failed_tests=named(Outcome.FAILED, Outcome.ERROR),
    )
    subject = (
        *_source(evidence.run),
        *(_distribution(it) for it in installed),
        _results(evidence, platform.result.platform, **({DECIDED: True} if decided else {})),
        *map(_file, platform.records),
    )
    return Statement(subject=subject, predicate=predicate)


def stated_result(platform: PlatformEvidence) -> StatedResult:
    """``PASSED`` for a product that passed as a whole and without a reservation.

    ``WARNED`` if it passed, but the harness failed, tests were selected, tests failed or passed
    against an expectation, or no log names the tests.
    """
    result, outcomes = platform.result, {it.outcome for it in platform.tests}
    has_failed = result.verdict.product is not Product.PASSED
    if has_failed or any(outcome.bad for outcome in outcomes):
        return StatedResult.FAILED
    is_clean = result.verdict.harness is Harness.CLEAN and not result.selected
    is_named = platform.has_log and outcomes.isdisjoint(WARNED)
    return StatedResult.PASSED if is_clean and is_named else StatedResult.WARNED


def _provenance(
    evidence: RunEvidence, platform: PlatformEvidence, built: Distribution, identity: str
) -> Statement:
    run, result = evidence.run, platform.result
    selected = {"operators": result.selected} if result.selected else {}
    predicate = BuildProvenance(
        build_definition=BuildDefinition(
            build_type=BUILD_TYPE,
            external_parameters={"project": run.project, "platform": result.platform, **selected},
            internal_parameters={"engine": run.engine, "dirty": run.dirty},
            resolved_dependencies=(*_source(run), *_image(platform)),
        ),
        run_details=RunDetails(
            builder=StatedIdentity(id=identity),
            metadata=BuildMetadata(
                invocation_id=run.run_id, started_on=run.started_at, finished_on=run.finished_at
            ),
            byproducts=(
                _results(evidence, result.platform),
                *map(_file, (*platform.records, *platform.configuration)),
            ),
        ),
    )
    return Statement(subject=(_distribution(built),), predicate=predicate)


def _results(
    evidence: RunEvidence, platform: str | None = None, **more: bool
) -> ResourceDescriptor:
    """``results.json``, with the names of what the statement is about and of all platforms."""
    about = {} if platform is None else {PLATFORM: platform}
    platforms: Sequence[str] = [it.result.platform for it in evidence.platforms]
    return ResourceDescriptor(
        name=evidence.results.path,
        digest=DigestSet(sha256=evidence.results.sha256),
        annotations={"run": evidence.run.run_id, "platforms": [*platforms], **about, **more},
    )


def _source(run: RunResult) -> Iterator[ResourceDescriptor]:
    """The commit, unless the sources were others."""
    if run.commit and not run.dirty and re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", run.commit):
        yield ResourceDescriptor(name="source", digest=DigestSet(git_commit=run.commit))


def _image(platform: PlatformEvidence) -> Iterator[ResourceDescriptor]:
    """The image that the stages ran in and the one that it was made from, as far as known."""
    image = platform.result.facts("engine", "image")
    for reference, digest in (("reference", "digest"), ("base", "base_digest")):
        name, match = image.get(reference), _IMAGE_DIGEST.fullmatch(str(image.get(digest)))
        if isinstance(name, str) and match:
            uri = f"docker:{quote(name, safe='/:@')}"
            yield ResourceDescriptor(uri=uri, digest=DigestSet(sha256=match[1]))


def _distribution(it: Distribution) -> ResourceDescriptor:
    return _file(FileDigest(path=it.path or it.name, sha256=it.sha256))


def _file(it: FileDigest) -> ResourceDescriptor:
    return ResourceDescriptor(name=it.path, digest=DigestSet(sha256=it.sha256))
