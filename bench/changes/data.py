"""Public series of real measurements that people have labelled; none of them is kept here."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.random import Generator

from bench.changes.scenarios import Array, Labelled, Scenario, step
from bench.rows import MeasurementError

# Apache Otava's source distribution (Apache-2.0) has TigerBeetle's benchmark in its tests.
OTAVA = (
    "https://files.pythonhosted.org/packages/8c/27/"
    "e1a88fc2e8d743f715c24d77cf9732bf429ea63e3d3451cca1946072b786/apache_otava-0.8.0.tar.gz"
)
OTAVA_SHA256 = "9ae53559c9396f27053db7d853780fb2ddbbf70f59124591c44b23fa2e2f9d94"
_TIGERBEETLE = "apache_otava-0.8.0/tests/tigerbeetle_test.py"
# Its authors describe it: "a couple distinctive ups and down, anomalous drop, then an upward slope
# and the rest is just normal variance", and mark 10 (the drop), 16, 71 and 97. A rise of 3 % at 61
# is in their plot without a mark.
_CHANGES = (15, 71, 95)
_UNMARKED = (61,)
# From here on there is nothing but noise.
_NOISE_FROM = 215


def tigerbeetle(archive: Path | None = None) -> Labelled:
    """The series, from a downloaded archive or from PyPI."""
    if archive:
        content = archive.read_bytes()
    else:
        with urllib.request.urlopen(OTAVA, timeout=60) as answer:
            content = answer.read()
    found = hashlib.sha256(content).hexdigest()
    if found != OTAVA_SHA256:
        raise MeasurementError(f"{archive or OTAVA}: sha256 is {found}; expected {OTAVA_SHA256}")
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        member = files.extractfile(_TIGERBEETLE)
        text = member.read().decode() if member else ""
    values = next(
        ast.literal_eval(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.List) and len(node.elts) > 300
    )
    return Labelled(values=list(map(float, values)), changes=_CHANGES, neutral=_UNMARKED)


def injected(series: Labelled, size: float) -> Scenario:
    """A step into real noise: a stretch of TigerBeetle's, of which some later part is shifted."""
    noise = np.array(series.values[_NOISE_FROM:])

    def stretch(random: Generator, count: int) -> Array:
        start = int(random.integers(len(noise) - count))
        return noise[start : start + count].copy()

    return step(f"TigerBeetle's noise (1.2 %), step {size:+.0%}", size, stretch)


def turing(folder: Path) -> Iterator[tuple[str, Labelled]]:
    """A folder in the format of the Turing Change Point Dataset: Mozilla's labelled series too.

    ``annotations.json`` has what each person marked in each series; people do not agree, so each
    series is looked at once and scored against everybody. Values that are missing (``null``) are
    left out, and leave no gap; series of several measures are not read.
    """
    annotations = json.loads((folder / "annotations.json").read_text())
    for path in sorted((folder / "datasets").glob("**/*.json")):
        document = json.loads(path.read_text())
        people = annotations.get(path.stem)
        if people and document["n_dim"] == 1:
            raw = document["series"][0]["raw"]
            values = [float(value) for value in raw if value is not None]
            there = [value is not None for value in raw]
            marks = tuple(tuple(sum(there[:place]) for place in marks) for marks in people.values())
            yield path.stem, Labelled(values=values, marks=marks, first_look=len(values))
