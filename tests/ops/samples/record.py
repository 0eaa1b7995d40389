"""Re-records samples.zip, and then variants.jsonl beside it: ``nox -s samples``.

Needs torch with ``torch.testing._internal`` (and its dependency ``expecttest``), takes a few
minutes on one core, and prints which overloads remain without a sample. Run it by hand when
a new torch brings new operators; the file it writes is committed.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import warnings
from pathlib import Path

import torch

# The packages lie one level above a script's own folder, which Python puts on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from samples import FORMAT_VERSION, SAMPLES_FILE, Sample, SampleSet, save, variants
from samples.adaptation import VARIANTS_FILE
from samples.handwritten import handwritten
from samples.recorder import Recorded, record
from samples.selection import for_other_devices, select
from samples.siblings import Target, direct_candidates, family_candidates, targets

# The order is also that of the test ids.
DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "int64", "bool")

# These return, or depend on, uninitialized memory: two calls agree only by chance. (The
# pivots that ``linalg_lstsq`` gives to LAPACK's gelsy are not initialized.)
_UNINITIALIZED = re.compile(r"empty|^_?resize|^linalg_lstsq")

COMMAND = "nox -s samples"


def main() -> None:
    """Parses the command line and records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=SAMPLES_FILE)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    samples = record_samples(tuple(options.dtypes))
    sample_set = SampleSet(_header(tuple(options.dtypes)), samples)
    save(sample_set, options.output)
    _print_summary(samples, options.output)
    variants.save(sample_set, options.output.with_name(VARIANTS_FILE.name))


def record_samples(dtypes: tuple[str, ...]) -> dict[str, dict[str, list[Sample]]]:
    """Returns the samples of every ``out`` and in-place overload that any call executes."""
    recorded = record(dtypes)
    chosen: dict[str, dict[str, list[Sample]]] = {}
    for target in targets():
        groups = _samples_of(target, recorded, dtypes)
        if groups:
            chosen[target.name] = groups
    return chosen


def _samples_of(
    target: Target, recorded: Recorded, dtypes: tuple[str, ...]
) -> dict[str, list[Sample]]:
    own = handwritten(target.name)
    if _UNINITIALIZED.search(target.name):
        return select(target, own, dtypes)
    direct = [*own, *direct_candidates(target, recorded)]
    return (
        select(target, direct, dtypes)
        or select(target, family_candidates(target, recorded), dtypes)
        or for_other_devices(target, own)
    )


def _header(dtypes: tuple[str, ...]) -> dict[str, object]:
    return {
        "format_version": FORMAT_VERSION,
        "torch_version": torch.__version__,
        "recorded": datetime.date.today().isoformat(),
        "command": COMMAND,
        "dtypes": list(dtypes),
    }


def _print_summary(samples: dict[str, dict[str, list[Sample]]], path: Path) -> None:
    known: list[Target] = targets()
    total = sum(len(group) for groups in samples.values() for group in groups.values())
    print(f"{path}: {path.stat().st_size:,} bytes, {total:,} samples")
    print(f"{len(samples)} of {len(known)} overloads have samples; the others:")
    print("\n".join(target.name for target in known if target.name not in samples))


if __name__ == "__main__":
    main()
