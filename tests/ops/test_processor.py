"""The features that a call refused by torch needs, and those of this processor."""

from __future__ import annotations

import platform

import processor
import pytest
import test_torch_ops
from harness import RefusedError
from installed import overloads
from processor import ONEDNN_ISAS, Processor, this_processor
from reasons import SkipReason
from samples import load
from test_torch_ops import Run, cases_of

import torch

# Messages of torch 2.13, of torch 2.4, and of oneDNN if no implementation fits.
BF16 = (
    "mkldnn_convolution: bf16 path needs the cpu support avx_ne_convert or avx512bw, avx512vl and"
    " avx512dq"
)
OLD_BF16 = "mkldnn_matmul: bf16 path needs the cpu support avx512bw, avx512vl and avx512dq"
FP16 = "mkldnn_convolution: fp16 path needs the cpu support avx_ne_convert or avx512_fp16"
UNNAMED = (
    "could not create a primitive descriptor for the matmul primitive. Run workload with"
    " environment variable ONEDNN_VERBOSE=all to get additional diagnostic information."
)


def with_isa(isa: str) -> Processor:
    """Returns a processor on which oneDNN uses one of its instruction sets."""
    onednn, features = processor._onednn(frozenset(ONEDNN_ISAS[isa]), None)
    assert onednn == isa
    return Processor("DEFAULT", onednn, features)


@pytest.mark.parametrize(
    ("isa", "message", "needs"),
    [
        ("AVX2", BF16, "avx_ne_convert or avx512bw avx512vl avx512dq"),
        ("AVX2", OLD_BF16, "avx512bw avx512vl avx512dq"),
        ("AVX512_CORE_BF16", FP16, "avx_ne_convert or avx512_fp16"),
        ("AVX2", UNNAMED, "onednn_above_avx2"),
        ("AVX512_CORE_VNNI", UNNAMED, "onednn_above_avx512_core_vnni"),
    ],
)
def test_missing_features_are_named(isa: str, message: str, needs: str) -> None:
    assert with_isa(isa).missing_features(message) == needs


@pytest.mark.parametrize(
    ("isa", "message"),
    [
        pytest.param("AVX512_CORE", BF16, id="has the features of one alternative"),
        pytest.param("AVX2_VNNI_2", BF16, id="has the other alternative"),
        pytest.param("AVX512_CORE_AMX_FP16", UNNAMED, id="oneDNN has nothing better"),
        pytest.param("SSE41", "\"abs_cpu\" not implemented for 'Half'", id="another refusal"),
        pytest.param("SSE41", "path needs the cpu support avx99 or sse4_1", id="unknown feature"),
    ],
)
def test_features_of_the_processor_are_not_missing(isa: str, message: str) -> None:
    assert with_isa(isa).missing_features(message) is None


@pytest.mark.parametrize(
    ("limit", "isa"),
    [
        ("SSE41", "SSE41"),
        ("avx2", "AVX2"),
        ("AVX10_1_512", "AVX512_CORE_FP16"),
        ("", "AVX512_CORE_AMX"),
        ("DEFAULT", "AVX512_CORE_AMX"),
        ("nonsense", "AVX512_CORE_AMX"),
    ],
)
@pytest.mark.parametrize("variable", processor.LIMITS)
def test_onednn_uses_no_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch, variable: str, limit: str, isa: str
) -> None:
    for name in processor.LIMITS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, limit)
    has = frozenset(ONEDNN_ISAS["AVX512_CORE_AMX"])
    found, features = processor._onednn(has, processor._limit())
    assert found == isa
    assert features & has == set(ONEDNN_ISAS[isa])


def test_a_later_instruction_set_is_above_those_that_it_contains() -> None:
    above = {name for name in with_isa("AVX512_CORE").features if name.startswith("onednn_above_")}
    assert above == {"onednn_above_sse41", "onednn_above_avx", "onednn_above_avx2"}


def test_this_processor_is_described() -> None:
    here = this_processor()
    assert here.torch == torch.backends.cpu.get_cpu_capability()
    if platform.machine() == "x86_64" and hasattr(torch._C._cpu, "_get_cpu_capability"):
        assert here.onednn in ONEDNN_ISAS
        assert here.features.issuperset(ONEDNN_ISAS[here.onednn])
    assert str(here.onednn or "nothing") in str(here)


@pytest.mark.parametrize(
    ("isa", "message", "reason"),
    [
        pytest.param("AVX2", BF16, SkipReason.INSTRUCTION_SET, id="lacks it"),
        pytest.param("AVX512_CORE", BF16, None, id="has it"),
    ],
)
@pytest.mark.operators("abs")
def test_only_missing_features_of_the_processor_excuse_a_refusal(
    monkeypatch: pytest.MonkeyPatch, isa: str, message: str, reason: SkipReason | None
) -> None:
    monkeypatch.setattr(test_torch_ops, "this_processor", lambda: with_isa(isa))
    monkeypatch.setattr(torch, "__version__", load().header["torch_version"])
    [case] = (
        case
        for overload in overloads()
        if overload.qualified_name == "abs.out"
        for case in cases_of(overload)
        if case.dtype == "float32"
    )
    run = Run(case, "cpu")

    def refuse(*_: object, **__: object) -> None:
        raise RefusedError(RuntimeError(message))

    monkeypatch.setattr(run, "_check", refuse)
    if reason is None:
        with pytest.raises(RefusedError, match="bf16 path"):
            run.execute(case.samples[0], by_keyword=False)
        return
    run.execute(case.samples[0], by_keyword=False)
    assert run.refusals == [(reason, message)]
    assert run.needs == "avx_ne_convert or avx512bw avx512vl avx512dq"
