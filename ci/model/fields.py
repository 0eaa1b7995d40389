"""The fields of ``results.json``: their types and their bounds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from ci.util.lines import DEEPEST, LARGEST_INTEGER, LONGEST_SECONDS, is_deep
from ci.util.text import make_storable

# Bounds of a document, which a stranger may have written. All results of this program are within.
# Bytes of results.json; one of seven platforms has 100,000, and 1.3 million more for each 5,000
# benchmarks.
LARGEST_DOCUMENT = 1 << 25
DEEPEST_DOCUMENT = 2 * DEEPEST  # levels; an environment is within it, and has DEEPEST by itself
MOST_STAGES = 1000  # of a platform; ours has three, and a report takes 2 ms for each
LONGEST_NAME = 64  # characters, as in ci.yaml; also the length of the store's columns
LONGEST_SUM = LONGEST_SECONDS * MOST_STAGES
LONGEST_BRANCH = 255  # characters; the longest name of a file, which a branch is in git
MOST_ANCESTORS = 200  # of a commit; two months of a project with three merges a day
MOST_SHARDS = 64  # of a platform; the largest machines have 16 devices
MOST_FAILURES = 20  # of a platform; its counts say how many there are
LONGEST_MESSAGE = 300  # characters of a failure's message
MOST_BENCHMARKS = 5000  # of a platform
LONGEST_FILE = 255  # characters of a file's name
MOST_LIBRARIES = 100  # that a distribution needs
LONGEST_BENCHMARK = 300  # characters of its name
LONGEST_UNIT = 16  # characters of a unit
LARGEST_VALUE = 1e30  # of a benchmark: squares of it are still numbers
LONGEST_TEST = 4000  # characters of a node id, which repeats the parameters
MOST_PARENTS = 64  # of a commit; git's own octopus merges have fewer
# Of the calendar, without the days that another time zone moves into a year that does not exist.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def _check_name(name: str, longest: int = LONGEST_NAME) -> str:
    if len(name) > longest:
        raise ValueError(f"got {len(name):,} characters, expected at most {longest}")
    if not name.isprintable():
        raise ValueError(f"got {name!r}, expected printable characters on one line")
    return name


def _check_moment(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("got a time without a zone, expected one with a zone")
    if not EARLIEST <= moment <= LATEST:
        raise ValueError(f"got {moment}, expected a time from {EARLIEST:%Y} to {LATEST:%Y}")
    return moment


def _check_environment(value: Any) -> Any:
    if is_deep(value, DEEPEST_DOCUMENT):
        raise ValueError(f"nested more than {DEEPEST_DOCUMENT} deep")
    return make_storable(value)


Text = Annotated[str, BeforeValidator(make_storable)]
Environment = Annotated[dict[str, JsonValue], BeforeValidator(_check_environment)]
Name = Annotated[Text, AfterValidator(_check_name)]
Branch = Annotated[Text, AfterValidator(partial(_check_name, longest=LONGEST_BRANCH))]
BenchmarkName = Annotated[
    Text, Field(min_length=1), AfterValidator(partial(_check_name, longest=LONGEST_BENCHMARK))
]
CommitId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
# Strict: the text "12" is no measure, nor is true.
Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST_INTEGER)]
ExitStatus = Annotated[int, Field(strict=True, ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=LONGEST_SUM)]
Moment = Annotated[datetime, AfterValidator(_check_moment)]


class DocumentModel(BaseModel):
    """A part of the document; it cannot change, and has no unknown keys."""

    # NaN and infinity would make a history useless. Most commands use few models: to prepare all
    # takes 0.1 CPU-s.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)
