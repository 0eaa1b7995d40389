"""The features of the processor, and those that a call needs which torch refuses.

torch asks oneDNN, which asks the processor (``cpuid``) and takes no more than
``ONEDNN_MAX_CPU_ISA`` allows. So the features that count are those that oneDNN may use.
``/proc/cpuinfo`` is not read: under an emulator it describes the host machine.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

import torch

_AVX2 = ("sse4_1", "avx", "avx2")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq")
_BF16 = (*_AVX512, "avx512_vnni", "avx512_bf16")
_AMX = (*_BF16, "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16")
# oneDNN's instruction sets with the features that each takes, by the names of its environment
# variable (https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html); of two
# that a processor has, oneDNN uses the later one.
ONEDNN_ISAS = {
    "SSE41": ("sse4_1",),
    "AVX": ("sse4_1", "avx"),
    "AVX2": _AVX2,
    "AVX2_VNNI": (*_AVX2, "avx_vnni"),
    "AVX2_VNNI_2": (*_AVX2, "avx_vnni", "avx_vnni_int8", "avx_ne_convert"),
    "AVX512_CORE": _AVX512,
    "AVX512_CORE_VNNI": (*_AVX512, "avx512_vnni"),
    "AVX512_CORE_BF16": _BF16,
    "AVX512_CORE_FP16": (*_BF16, "avx512_fp16"),
    "AVX512_CORE_AMX": _AMX,
    "AVX512_CORE_AMX_FP16": (*_AMX, "amx_fp16"),
}
_ALIASES = {
    "AVX10_1_512": "AVX512_CORE_FP16",
    "AVX10_1_512_AMX": "AVX512_CORE_AMX",
    "AVX10_1_512_AMX_FP16": "AVX512_CORE_AMX_FP16",
}
LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # the second is the name before oneDNN 2
# torch writes avx512bw where cpuinfo writes avx512_bw.
_FEATURES = {
    feature.replace("_", ""): feature for features in ONEDNN_ISAS.values() for feature in features
}
_NAMED = re.compile(r"path needs the cpu support (?P<alternatives>[\w ,]+)")
# oneDNN's message if none of its implementations fits the types and the instruction set.
_UNNAMED = "could not create a primitive"


@dataclass(frozen=True)
class Processor:
    """The capabilities that a process runs with."""

    torch: str
    """The capability of ATen's own kernels: ``torch.backends.cpu.get_cpu_capability()``."""
    onednn: str | None
    """The instruction set that oneDNN uses, one of ``ONEDNN_ISAS``; ``None``: not x86."""
    features: frozenset[str]
    """The features that oneDNN may use, and ``onednn_above_<isa>`` for each smaller set."""

    def __str__(self) -> str:
        return f"a processor with {self.torch} for torch, {self.onednn or 'nothing'} for oneDNN"

    def record(self) -> dict[str, object]:
        """Returns the entry of the per-test log, recorded once per process."""
        return {"torch": self.torch, "onednn": self.onednn, "features": sorted(self.features)}

    def missing_features(self, message: str) -> str | None:
        """Returns the features that a refused call needs and the processor lacks.

        Alternatives are separated by " or ", features that go together by spaces:
        ``avx_ne_convert or avx512bw avx512vl avx512dq``. ``None``: the message names no
        missing instructions, or some that this processor has, which is an error of torch's.
        """
        if named := _NAMED.search(message):
            alternatives = [
                [_FEATURES.get(word.replace("_", "")) for word in re.split(r"[ ,]+", alternative)]
                for alternative in named["alternatives"].replace(" and ", " ").split(" or ")
            ]
            if any(None in words or self.features.issuperset(words) for words in alternatives):
                return None
            return " or ".join(" ".join(map(str, words)) for words in alternatives)
        if _UNNAMED in message and self.onednn not in (None, [*ONEDNN_ISAS][-1]):
            return f"onednn_above_{self.onednn}".lower()
        return None


@cache
def this_processor() -> Processor:
    """Returns the capabilities of this process; they are fixed when torch is loaded."""
    return Processor(torch.backends.cpu.get_cpu_capability(), *_onednn(_cpuid(), _limit()))


def _cpuid() -> frozenset[str]:
    """Returns the features that the processor has, as torch's own library reads them."""
    read = getattr(torch._C._cpu, "_get_cpu_capability", dict)  # not in torch before 2.6
    found = {name.replace("_", "") for name, value in read().items() if value is True}
    return frozenset(_FEATURES[name] for name in found & _FEATURES.keys())


def _limit() -> str | None:
    value = next((os.environ[name] for name in LIMITS if os.environ.get(name)), "").upper()
    name = _ALIASES.get(value, value)
    return name if name in ONEDNN_ISAS else None  # oneDNN ignores unknown values, too


def _onednn(cpuid: frozenset[str], limit: str | None) -> tuple[str | None, frozenset[str]]:
    allowed = cpuid if limit is None else cpuid & set(ONEDNN_ISAS[limit])
    usable = [isa for isa, features in ONEDNN_ISAS.items() if allowed.issuperset(features)]
    if not usable:
        return None, allowed
    mine = set(ONEDNN_ISAS[usable[-1]])
    below = [f"onednn_above_{isa}".lower() for isa in ONEDNN_ISAS if mine > set(ONEDNN_ISAS[isa])]
    return usable[-1], allowed.union(below)
