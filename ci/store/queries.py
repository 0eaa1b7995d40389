"""Queries over many runs. They read columns: objects for rows would take 4 times as long."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Column, Connection, Engine, Row, func, select

from ci.errors import InfrastructureError, UnreadableRunError
from ci.facts.acceptance import Acceptance
from ci.facts.environment_key import ALL_OPERATORS, EnvironmentKey, successors
from ci.facts.sentences.on_stages import is_pending
from ci.facts.suite import Outcomes
from ci.model.results import PlatformResult
from ci.model.verdicts import Product
from ci.store import blobs
from ci.store.connect import masked_url, read_transaction
from ci.store.rows import (
    AlarmEvent,
    AlarmMessage,
    AlarmRecord,
    AlarmRise,
    AlarmState,
    CommitParents,
    RepeatedRuns,
    ResultHead,
    RunHead,
    RunMeasures,
)
from ci.store.tables import (
    ACCEPTED,
    ALARM_MESSAGES,
    ALARM_RISES,
    ALARMS,
    BLOBS,
    DETAILS,
    ENVIRONMENT_KEYS,
    LINEAGES,
    MEASURED,
    PLATFORMS,
    RUNS,
)
from ci.util.invocation import ACCEPTED_FILE, command

# Start times have a resolution of one second, so short runs can share one.
NEWEST_FIRST = (RUNS.c.started_at.desc(), RUNS.c.finished_at.desc(), RUNS.c.run_id.desc())
_BETWEEN_NAMES = "\n"  # no name contains it: names are printable, on one line
_BEFORE_PRODUCT = " "  # no product contains it
_HEAD = ("run_id", "project", "commit", "dirty", "started_at", "finished_at")
OUTCOMES = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed")
_SLICE = 10_000  # names in one query; SQLite takes 32,766
_DOCUMENTS = 1_000  # that are read at once


class StoreQueries:
    """The queries of a ``Store`` that concern several runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.skipped: dict[str, UnreadableRunError] = {}
        """The runs that queries left out, by id, each with the reason."""

    def skip(self, error: UnreadableRunError) -> None:
        """Leave a run out, and keep the reason for the user."""
        self.skipped.setdefault(error.run_id, error)

    def unreadable(self, run_id: str, reason: object, *, newer: bool = False) -> UnreadableRunError:
        """The error for a run; ``newer`` is whether a newer version of this program wrote it."""
        store = f"the store {masked_url(self._engine)}"
        if newer:
            message = f"{store} was written by a newer version of this program: run {run_id}"
            return UnreadableRunError(run_id, f"{message}: {reason}", remedy="Update this program.")
        remedy = f"Remove it: {command('gc')}. If its folder is intact, import it again:"
        remedy += f" {command('import', f'RESULTS/{run_id}')}"
        message = f"{store} cannot read run {run_id}: {reason}"
        return UnreadableRunError(run_id, message, remedy=remedy, damaged=True)

    def heads(self, *, project: str | None = None, last: int | None = None) -> list[RunHead]:
        """List runs, newest first: the ``last`` ones, or all."""
        # One text with lines such as ``cpu not_run``: a row per platform takes longer to read.
        row = PLATFORMS.c.platform + _BEFORE_PRODUCT + PLATFORMS.c.product
        texts = select(func.aggregate_strings(row, _BETWEEN_NAMES))
        of_run = texts.where(PLATFORMS.c.run_id == RUNS.c.run_id).scalar_subquery()
        head = [RUNS.c[name] for name in _HEAD]
        head += [column for column in LINEAGES.columns if column.name != "run_id"]
        query = select(*head, of_run).select_from(
            RUNS.outerjoin(LINEAGES, LINEAGES.c.run_id == RUNS.c.run_id)
        )
        query = query.order_by(*NEWEST_FIRST).limit(last)
        if project is not None:
            query = query.where(RUNS.c.project == project)
        with read_transaction(self._engine) as connection:
            found = connection.execute(query).all()
            selected = selections(connection)
        names = [column.name for column in head]
        # Most runs have the same platforms with the same products.
        platforms = {text: _platforms(text) for text in {run[-1] for run in found}}
        return [
            RunHead(
                **dict(zip(names, columns, strict=True)) | platforms[text],
                selected=selected.get(columns[0], {}),
            )
            for *columns, text in found
        ]

    def parents(self, run_ids: Collection[str]) -> dict[str, CommitParents]:
        """Look up the recorded parents of the commits of runs, by run."""
        query = select(RUNS.c.run_id, RUNS.c.document)
        with read_transaction(self._engine) as connection:
            rows = _rows_of(connection, query, RUNS.c.run_id, sorted(run_ids))
            return {row.run_id: _parents(row.document) for row in rows}

    def measured(self, platform: str, runs: Sequence[RunHead]) -> list[RunMeasures]:
        """Look up the measures of runs on a platform, in the order of ``runs``."""
        return self.measured_on({platform: runs})[platform]

    def measured_on(self, runs: Mapping[str, Sequence[RunHead]]) -> dict[str, list[RunMeasures]]:
        """Look up the measures of runs by platform, in the order of ``runs`` on each."""
        columns = (PLATFORMS.c.platform, PLATFORMS.c.run_id, PLATFORMS.c.environment_key)
        query = (
            select(*columns, MEASURED.c.measures)
            .join(MEASURED, MEASURED.c.platform_id == PLATFORMS.c.id)
            .where(PLATFORMS.c.platform.in_(runs))
        )
        run_ids = {run.run_id: None for some in runs.values() for run in some}
        with read_transaction(self._engine) as connection:
            rows = _rows_of(connection, query, PLATFORMS.c.run_id, [*run_ids])
            found: dict[str, dict[str, tuple[str, Any]]] = {platform: {} for platform in runs}
            for platform, run_id, key, values in rows:
                found[platform][run_id] = (key, values)
            environments = _environments(connection, runs)
        now = successors(_readable(environments))
        faults = {key: environment_fault(it) for key, it in environments.items()}
        measured: dict[str, list[RunMeasures]] = {platform: [] for platform in runs}
        for platform, run in ((name, run) for name, some in runs.items() for run in some):
            if run.run_id not in found[platform]:
                continue
            key, values = found[platform][run.run_id]
            if error := self.row_error(run.run_id, platform, values, faults[key]):
                self.skip(error)
                continue
            # By place, which takes less time than by name.
            row = RunMeasures(
                run.run_id, run.commit, run.dirty, run.started_at, now.get(key, key), values
            )
            measured[platform].append(row)
        return measured

    def machines(self, run_ids: Collection[str], platform: str) -> dict[str, Mapping[str, Any]]:
        """Look up the facts of the machines of a few runs on a platform, by run."""
        query = select(PLATFORMS.c.run_id, PLATFORMS.c.document).where(
            PLATFORMS.c.platform == platform, PLATFORMS.c.run_id.in_(run_ids)
        )
        with read_transaction(self._engine) as connection:
            rows = connection.execute(query).all()
        found: dict[str, Mapping[str, Any]] = {}
        for run_id, document in rows:
            environment = document.get("environment") if isinstance(document, dict) else None
            machine = environment.get("machine") if isinstance(environment, dict) else None
            found[run_id] = machine if isinstance(machine, dict) else {}
        return found

    def result_heads(self, *, project: str) -> list[ResultHead]:
        """List the results of all runs of a project, oldest run first."""
        query = (
            select(PLATFORMS.c.run_id, PLATFORMS.c.document)
            .join(RUNS, RUNS.c.run_id == PLATFORMS.c.run_id)
            .where(RUNS.c.project == project)
            .order_by(*NEWEST_FIRST, PLATFORMS.c.position.desc())
        )
        found = []
        with read_transaction(self._engine) as connection:
            # Each document is dropped once it is read: all of them take half a gigabyte.
            for run_id, document in connection.execute(query).yield_per(_DOCUMENTS):
                try:
                    found.append(_result_head(run_id, PlatformResult.model_validate(document)))
                except ValidationError as error:
                    self.skip(self.unreadable(run_id, error.errors(include_url=False)[0]["msg"]))
        return found[::-1]

    def row_error(
        self, run_id: str, platform: str, measures: object, environment: str
    ) -> UnreadableRunError | None:
        """The error of a row if its measures, or its ``environment_fault``, make it unreadable."""
        if not _are_measures(measures):
            return self.unreadable(run_id, f"{platform}: its measures are damaged")
        if environment:
            reason, newer = f"{platform}: its environment: {environment}", environment == UNKNOWN
            return self.unreadable(run_id, reason, newer=newer)
        return None

    def environment_keys(self, digests: Collection[str]) -> dict[str, EnvironmentKey]:
        """Look up environment keys by their digests."""
        with read_transaction(self._engine) as connection:
            return _readable(_components(connection, digests))

    def repeated_runs(self, platform: str, *, project: str) -> list[RepeatedRuns]:
        """Group the runs that tested one commit in one environment more than once.

        Several runs count, and so does one run with reruns.
        """
        with_reruns = select(DETAILS.c.platform_id).where(DETAILS.c.reruns.is_not(None))
        of_commits = (
            RUNS.c.project == project,
            RUNS.c.commit.is_not(None),
            RUNS.c.dirty.is_(False),
        )
        several_runs = select(RUNS.c.commit).where(*of_commits).group_by(RUNS.c.commit)
        several_runs = several_runs.having(func.count() > 1)  # most commits have only one
        query = (
            select(RUNS.c.commit, PLATFORMS.c.environment_key, RUNS.c.run_id, PLATFORMS.c.id)
            .join(PLATFORMS, PLATFORMS.c.run_id == RUNS.c.run_id)
            .where(
                PLATFORMS.c.platform == platform,
                *of_commits,
                RUNS.c.commit.in_(several_runs) | PLATFORMS.c.id.in_(with_reruns),
            )
            .order_by(*NEWEST_FIRST)
        )
        with read_transaction(self._engine) as connection:
            now = successors(_readable(_environments(connection, [platform])))
            groups: dict[tuple[str, str], list[Row[Any]]] = {}
            for row in reversed(connection.execute(query).all()):
                key = now.get(row.environment_key, row.environment_key)
                groups.setdefault((row.commit, key), []).append(row)
            rerun = set(connection.scalars(with_reruns))
            # Rows of details are long, and most commits have only one run.
            several = {
                k: rows for k, rows in groups.items() if len(rows) > 1 or rows[0].id in rerun
            }
            # The digests of node ids and outcomes, for rows that have any.
            columns = (DETAILS.c.platform_id, DETAILS.c.node_ids, DETAILS.c.outcomes)
            digests = select(*columns).where(DETAILS.c.outcomes.is_not(None))
            ids = [row.id for rows in several.values() for row in rows]
            tested = _rows_of(connection, digests, DETAILS.c.platform_id, ids)
            lists = {platform_id: tuple(some) for platform_id, *some in tested}
        found = []
        for (commit, key), rows in several.items():
            known = [row for row in rows if row.id in lists]
            group = RepeatedRuns(
                commit=commit,
                key=key,
                run_ids=tuple(row.run_id for row in known),
                rerun=tuple(row.run_id for row in known if row.id in rerun),
                differing=len({lists[row.id] for row in known}) > 1,
            )
            if len(group.run_ids) > 1 or group.rerun:
                found.append(group)
        return found

    def outcomes_of_tests(
        self, tests: Collection[str], run_ids: Collection[str], platform: str
    ) -> dict[str, Outcomes]:
        """Load a few tests without times, by run; some hundreds of runs at most."""
        query = (
            select(PLATFORMS.c.run_id, DETAILS.c.node_ids, DETAILS.c.outcomes)
            .join(PLATFORMS, DETAILS.c.platform_id == PLATFORMS.c.id)
            .where(
                PLATFORMS.c.platform == platform,
                PLATFORMS.c.run_id.in_(run_ids),
                DETAILS.c.outcomes.is_not(None),
            )
        )
        with read_transaction(self._engine) as connection:
            rows = connection.execute(query).all()
            digests = {digest for row in rows for digest in (row.node_ids, row.outcomes)}
            lists = select(BLOBS.c.digest, BLOBS.c.content).where(BLOBS.c.digest.in_(digests))
            contents = {row.digest: row.content for row in connection.execute(lists)}
        digests = {row.node_ids for row in rows}
        places = {digest: blobs.find_names(contents[digest], tests) for digest in digests}
        return {row.run_id: _outcomes(places[row.node_ids], contents[row.outcomes]) for row in rows}

    def accepted(self, project: str) -> list[Acceptance]:
        """List the acceptances of a project, as its file had them when it was last read."""
        columns = [ACCEPTED.c[name] for name in Acceptance.model_fields]
        query = select(*columns).where(ACCEPTED.c.project == project)
        with read_transaction(self._engine) as connection:
            rows = connection.execute(query.order_by(ACCEPTED.c.position)).all()
        try:
            return [Acceptance.model_validate(dict(row._mapping), strict=False) for row in rows]
        except ValidationError as error:
            reason = error.errors()[0]
            place = ".".join(map(str, reason["loc"]))
            store = masked_url(self._engine)
            message = f"the store {store} cannot read the acceptances of {project}: {place}:"
            remedy = f"Copy them from the project again: {command('import', ACCEPTED_FILE)}"
            what = "expected " if reason["type"] == "expected" else ""  # our own errors
            raise InfrastructureError(f"{message} {what}{reason['msg']}", remedy=remedy) from error

    def alarm_records(self, project: str) -> list[AlarmRecord]:
        """List the alarms of a project, in the order in which they were found."""
        own = ALARM_RISES.c.project == project
        with read_transaction(self._engine) as connection:
            rows = connection.execute(
                select(ALARMS).where(ALARMS.c.project == project).order_by(ALARMS.c.position)
            ).all()
            rises = connection.execute(
                select(ALARM_RISES)
                .where(own)
                .order_by(ALARM_RISES.c.platform, ALARM_RISES.c.measure)
            ).all()
        by_alarm: dict[str, list[AlarmRise]] = {}
        for rise in rises:
            by_alarm.setdefault(rise.alarm_id, []).append(_from_row(AlarmRise, rise))
        return [
            _from_row(
                AlarmRecord,
                row,
                state=AlarmState(row.state),
                rises=tuple(by_alarm.get(row.alarm_id, ())),
            )
            for row in rows
        ]

    def alarm_messages(self, project: str, address: str) -> dict[str, AlarmMessage]:
        """The last message of each alarm to the address with this digest, by alarm."""
        table = ALARM_MESSAGES
        query = select(table).where(table.c.project == project, table.c.address == address)
        with read_transaction(self._engine) as connection:
            rows = connection.execute(query).all()
        return {
            row.alarm_id: _from_row(AlarmMessage, row, event=AlarmEvent(row.event)) for row in rows
        }


def _from_row(kind: type[Any], row: Row[Any], **values: Any) -> Any:
    """Make a dataclass from the columns of the same names."""
    names = {it.name for it in fields(kind)} - values.keys()
    return kind(**{name: getattr(row, name) for name in names}, **values)


def _parents(document: object) -> CommitParents:
    """Read the document of a run; a damaged one has no parents, and is reported by ``load``."""
    lineage = document.get("lineage") if isinstance(document, dict) else None
    found = lineage if isinstance(lineage, dict) else {}
    ancestors, parents = (
        tuple(known) if isinstance(known := found.get(name), list) else ()
        for name in ("ancestors", "parents")
    )
    return CommitParents(ancestors=ancestors, merged=parents[1:])


def _result_head(run_id: str, result: PlatformResult) -> ResultHead:
    pytest, verdict = result.pytest, result.verdict
    return ResultHead(
        run_id=run_id,
        platform=result.platform,
        label=result.label,
        product=verdict.product,
        harness=verdict.harness,
        built=result.built,
        counts={name: getattr(pytest, name) for name in OUTCOMES} if pytest else {},
        active=sum(it.active for it in result.overloads),
        executed=sum(it.executed for it in result.overloads),
        build_install_s=result.build_install_s,
        executed_share=pytest.executed_share if pytest else None,
        selected=result.selected,
        is_pending=is_pending(verdict),
        engine=str(result.facts("engine").get("name") or ""),
        host=str(result.facts("machine").get("hostname") or ""),
    )


def _platforms(text: str | None) -> dict[str, Any]:
    """The platforms of a head, and those that have begun."""
    rows = text.split(_BETWEEN_NAMES) if text else ()
    found = sorted(row.rpartition(_BEFORE_PRODUCT) for row in rows)
    products = {name: product for name, _, product in found}
    begun = tuple(name for name in products if products[name] != Product.NOT_RUN)
    return {"platforms": tuple(products), "begun": begun}


def _environments(connection: Connection, platforms: Collection[str]) -> dict[str, Any]:
    """The components of platforms' environments by digest, in the order of their first runs."""
    platform, key = PLATFORMS.c.platform, PLATFORMS.c.environment_key
    query = select(key).where(platform.in_(platforms)).group_by(platform, key)
    digests = connection.scalars(query.order_by(func.min(PLATFORMS.c.id))).all()
    found = _components(connection, digests)
    return {digest: found[digest] for digest in digests if digest in found}


def selections(connection: Connection) -> dict[str, dict[str, str]]:
    """The selected operators by run and platform, of the results that have not all operators."""
    columns = (ENVIRONMENT_KEYS.c.digest, ENVIRONMENT_KEYS.c.components)
    operators = {
        digest: selected
        for digest, components in connection.execute(select(*columns))
        if isinstance(components, dict)
        and isinstance(selected := components.get("selection"), str)
        and selected != ALL_OPERATORS
    }
    query = select(PLATFORMS.c.run_id, PLATFORMS.c.platform, PLATFORMS.c.environment_key)
    found: dict[str, dict[str, str]] = {}
    for row in _rows_of(connection, query, PLATFORMS.c.environment_key, sorted(operators)):
        found.setdefault(row.run_id, {})[row.platform] = operators[row.environment_key]
    return found


def _readable(environments: Mapping[str, Any]) -> dict[str, EnvironmentKey]:
    """The environment keys that can be read, by their digests."""
    found = environments.items()
    return {digest: EnvironmentKey(**it) for digest, it in found if not environment_fault(it)}


def _components(connection: Connection, digests: Collection[str]) -> dict[str, Any]:
    query = select(ENVIRONMENT_KEYS.c.digest, ENVIRONMENT_KEYS.c.components)
    rows = _rows_of(connection, query, ENVIRONMENT_KEYS.c.digest, sorted(set(digests)))
    return {row.digest: row.components for row in rows}


UNKNOWN = "got unknown components"  # a newer version of this program has more of them
_COMPONENTS = {it.name for it in fields(EnvironmentKey)}
_REQUIRED = {it.name for it in fields(EnvironmentKey) if it.default is MISSING}


def environment_fault(components: object) -> str:
    """Why a row does not have the components of an environment key, all texts; empty if it does."""
    if not isinstance(components, dict):
        return "damaged"
    if not components.keys() <= _COMPONENTS:
        return UNKNOWN
    are_texts = all(isinstance(it, str) for it in components.values())
    return "" if are_texts and components.keys() >= _REQUIRED else "damaged"


def _are_measures(found: object) -> bool:
    """Whether a row has measures: numbers, and none of them is infinite."""
    if not isinstance(found, dict) or not {*map(type, found.values())} <= {int, float}:
        return False
    try:
        if math.isfinite(sum(found.values(), 0.0)):  # in half of the time of the maximum
            return True
    except OverflowError:  # an integer larger than any float
        return False
    largest: float = max(map(abs, found.values()))
    return largest <= sys.float_info.max


def _rows_of(
    connection: Connection, query: Any, column: Column[Any], values: Sequence[Any]
) -> Iterator[Any]:
    """Yield the rows with these values, in several queries if there are many."""
    for begin in range(0, len(values), _SLICE):
        some = query.where(column.in_(values[begin : begin + _SLICE]))
        yield from connection.execute(some).all()


def _outcomes(places: dict[str, int], content: bytes) -> Outcomes:
    endings = blobs.decode_endings(content, places.values())
    return Outcomes(
        read_names=lambda: [*places], read_endings=lambda: endings, read_seconds=_unknown
    )


def _unknown() -> Sequence[float]:
    raise NotImplementedError("times are loaded only for all tests of a run")
