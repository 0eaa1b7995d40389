"""The second oracle: compares a device with the CPU, within tolerance. It reports and never fails.

Two right answers can differ: singular vectors in their sign, equal values in their order, random
numbers in everything. So the comparison uses what all right answers share: the product of the
factors, the values that the indices pick. ``SHARED`` has the function for each of these overloads.
The other overloads are compared by their outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness import Arguments, invoke, seeded, tensors, written_names
from samples import Sample

import torch
from torch import Tensor

AGREES = "agrees"
DIFFERS = "differs"
NOT_COMPARABLE = "not comparable"

# Relative and absolute. Complex numbers are as precise as their parts.
TOLERANCES = {
    torch.float64: 1e-7,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 2e-2,
    torch.complex128: 1e-7,
    torch.complex64: 1e-4,
    torch.complex32: 1e-2,
}
OF_OTHER_FLOATS = 0.25  # one step of the coarsest: two bits of mantissa

# Their values are uninitialized memory.
UNINITIALIZED = ("empty", "new_empty", "resize", "_resize")

Tensors = list[Tensor]
# Computes, from inputs and outputs on the CPU, what all right answers share.
Shared = Callable[[Arguments, Tensors], dict[str, Tensor]]


def against_cpu(sample: Sample, overload: Any, actual: Arguments) -> str:
    """Compares the results of a call on its device with ATen's results on the CPU."""
    inputs = sample.bind(overload._schema, "cpu")
    expected = sample.bind(overload._schema, "cpu")
    try:
        seeded(partial(invoke, overload), expected)
    except Exception as error:
        return f"{NOT_COMPARABLE}: the CPU refuses it: {_line(error)}"
    return compare(overload, inputs, expected, actual)


def compare(overload: Any, inputs: Arguments, expected: Arguments, actual: Arguments) -> str:
    """Report whether the second outcome of a call is right, if the first one is."""
    names = written_names(overload)
    wanted, got = _written(names, expected), _written(names, actual)
    base = overload._schema.name.removeprefix("aten::").rstrip("_")
    if base not in SHAPE_DEPENDS_ON_DEVICE:
        difference = _kind_difference(wanted, got)
        if difference is not None:
            return f"{DIFFERS}: {difference}"
    if is_random(overload) or base.startswith(UNINITIALIZED):
        return AGREES
    shared = SHARED.get(base, _outputs)
    try:
        wanted_parts, got_parts = shared(inputs, wanted), shared(inputs, got)
    except Exception as error:
        # If this fails for the CPU's own outcome too, the comparison is impossible.
        if _fails(shared, inputs, wanted):
            return f"{NOT_COMPARABLE}: {_line(error)}"
        return f"{DIFFERS}: its outputs cannot be combined: {_line(error)}"
    for name, part in wanted_parts.items():
        difference = _difference(part, got_parts[name], scaled=shared is not _outputs)
        if difference is not None:
            return f"{DIFFERS}: {name}: {difference}"
    return AGREES


def summary(verdicts: list[str]) -> str:
    """Returns the verdict on several samples: one that differs outweighs all."""
    for kind in (DIFFERS, AGREES, NOT_COMPARABLE):
        for verdict in verdicts:
            if verdict.startswith(kind):
                return verdict
    return f"{NOT_COMPARABLE}: no sample ran"


def is_random(overload: Any) -> bool:
    """Report whether an overload draws random numbers, of which devices have their own."""
    return torch.Tag.nondeterministic_seeded in overload.tags


def _fails(shared: Shared, inputs: Arguments, outputs: Tensors) -> bool:
    try:
        shared(inputs, outputs)
    except Exception:
        return True
    return False


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _written(names: set[str], arguments: Arguments) -> Tensors:
    """Returns the outputs in the order of the schema, as dense tensors on the CPU."""
    return [_dense(tensor.detach().cpu()) for name, tensor in tensors(arguments) if name in names]


def _dense(tensor: Tensor) -> Tensor:
    if tensor.is_quantized:
        return tensor.dequantize()
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return dense.resolve_conj().resolve_neg()


def _kind_difference(wanted: Tensors, got: Tensors) -> str | None:
    for number, (left, right) in enumerate(zip(wanted, got, strict=True)):
        if left.dtype != right.dtype:
            return f"output {number}: {right.dtype}, on the CPU {left.dtype}"
        if left.shape != right.shape:
            return f"output {number}: shape {tuple(right.shape)}, on the CPU {tuple(left.shape)}"
    return None


def _difference(wanted: Tensor, got: Tensor, *, scaled: bool) -> str | None:
    if wanted.shape != got.shape:
        return f"shape {tuple(got.shape)}, on the CPU {tuple(wanted.shape)}"
    if not (wanted.is_floating_point() or wanted.is_complex()):
        unequal = int((wanted != got).sum())
        return f"{unequal} of {wanted.numel()} elements are not equal" if unequal else None
    tolerance = TOLERANCES.get(wanted.dtype, OF_OTHER_FLOATS)
    left, right = _precise(wanted), _precise(got)
    absolute = tolerance * max(1.0, _largest(left)) if scaled else tolerance
    close = torch.isclose(right, left, rtol=tolerance, atol=absolute, equal_nan=True)
    if close.all():
        return None
    furthest = (left - right)[~close].abs().max().item()
    return f"{int((~close).sum())} of {wanted.numel()} elements are off by up to {furthest:.3g}"


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _largest(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _like(tensor: Tensor, computed: Tensor) -> Tensor:
    """Returns a precise result in the dtype of ``tensor``, which decides on the tolerance."""
    return computed.to(tensor.dtype)


# What right answers share. --------------------------------------------------------------------


def _outputs(_: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    return {f"output {number}": tensor for number, tensor in enumerate(outputs)}


def _squares(matrix: Tensor) -> Tensor:
    """The inner products of the columns: the identity where they are orthonormal."""
    precise = _precise(matrix)
    return _like(matrix, precise.mH @ precise)


def _product(*factors: Tensor) -> Tensor:
    result = _precise(factors[0])
    for factor in factors[1:]:
        result = result @ _precise(factor)
    dtype = next((each.dtype for each in factors if each.is_complex()), factors[0].dtype)
    return result.to(dtype)


def _svd(_: Arguments, outputs: Tensors, *, adjoint: bool = True) -> dict[str, Tensor]:
    left, values, right = outputs
    if not right.numel():
        return {"singular values": values}
    rows = right if adjoint else right.mH
    rank = values.shape[-1]
    matrix = _product(left[..., :rank] * values.unsqueeze(-2), rows[..., :rank, :])
    return {
        "singular values": values,
        "U S Vh": matrix,
        "Uh U": _squares(left),
        "Vh V": _squares(rows.mH),
    }


def _eigh(_: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    values, vectors = outputs
    if not vectors.numel():
        return {"eigenvalues": values}
    matrix = _product(vectors * values.unsqueeze(-2), vectors.mH)
    return {"eigenvalues": values, "V L Vh": matrix, "Vh V": _squares(vectors)}


def _eigvals(_: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    """In any order: the sums of their powers, scaled to keep these small."""
    values = outputs[0]
    largest = values.abs().amax(-1, keepdim=True).clamp(min=1e-30) if values.numel() else 1
    scaled = _precise(values / largest)
    sums = [_like(values, scaled.pow(power).sum(-1)) for power in range(1, values.shape[-1] + 1)]
    largest_of_each = values.abs().amax(-1) if values.numel() else values
    return {"largest": largest_of_each} | {
        f"sum {number}": each for number, each in enumerate(sums)
    }


def _eig(inputs: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    values, vectors = outputs
    matrix = _precise(inputs["self"]).to(torch.complex128)
    residual = matrix @ _precise(vectors) - _precise(vectors) * _precise(values).unsqueeze(-2)
    scale = max(1.0, _largest(matrix))
    return _eigvals(inputs, [values]) | {
        "A V - V L": _like(vectors, residual / scale),
        "lengths": torch.linalg.vector_norm(vectors, dim=-2),
    }


def _qr(_: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    factor, triangle = outputs
    lower = triangle.tril(-1)
    if not factor.numel():
        return {"Rh R": _squares(triangle), "below R": lower}
    return {"Q R": _product(factor, triangle), "Qh Q": _squares(factor), "below R": lower}


def _geqrf(_: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    reflectors, scales = outputs
    rank = scales.shape[-1]
    columns = torch.linalg.householder_product(reflectors[..., :, :rank], scales)
    return {"Q R": _product(columns, reflectors[..., :rank, :].triu()), "Qh Q": _squares(columns)}


def _lu_factor(_: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    factors, pivots, *info = outputs
    return {"P L U": _product(*torch.lu_unpack(factors, pivots))} | _outputs(_, info)


def _lu(_: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    permutation, lower, upper = outputs
    product = _product(lower, upper)
    matrix = _product(permutation, product) if permutation.numel() else product
    parts = {"P L U": matrix, "above L": lower.triu(1), "below U": upper.tril(-1)}
    return parts | {"diagonal of L": lower.diagonal(dim1=-2, dim2=-1)}


def _by_lu(count: int) -> Shared:
    """A result and its factors, which may be those of the transposed matrix."""

    def shared(inputs: Arguments, outputs: Tensors) -> dict[str, Tensor]:
        factors = outputs[count]
        determinant = _precise(factors.diagonal(dim1=-2, dim2=-1)).prod(-1).abs()
        real = factors.abs().dtype
        parts = _outputs(inputs, outputs[:count] + outputs[count + 2 :])
        return parts | {"size of the determinant": determinant.to(real)}

    return shared


def _ldl(inputs: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    factors, pivots, *info = outputs
    identity = torch.eye(factors.shape[-1], dtype=factors.dtype).expand(factors.shape).contiguous()
    hermitian = bool(inputs.get("hermitian"))
    inverse = torch.linalg.ldl_solve(factors, pivots, identity, hermitian=hermitian)
    return {"inverse": inverse} | _outputs(inputs, info)


def _lstsq(inputs: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    """Only the solution: the other outputs depend on the driver, which differs by device."""
    right = inputs["b"]
    solution = outputs[0]
    if right.dim() == inputs["self"].dim() - 1:
        solution = solution.unsqueeze(-1)
    return {"A X": _product(inputs["self"], solution)}


def _picks(inputs: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    """The last output has indices into ``self``, along ``dim`` or into all elements."""
    *values, indices = outputs
    if "dim" not in inputs:  # of two tensors, or of all elements: values only, no indices
        return _outputs(inputs, outputs)
    return _outputs(inputs, values) | {"picked": _pick(inputs["self"], indices, inputs.get("dim"))}


def _pick(source: Tensor, indices: Tensor, dim: int | None) -> Tensor:
    if dim is None:
        return source.reshape(-1)[indices]
    if source.dim() == 0:
        return source.reshape(1)[indices]
    if indices.dim() < source.dim():
        return source.gather(dim, indices.unsqueeze(dim)).squeeze(dim)
    return source.gather(dim, indices)


def _permutes(inputs: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    """Like ``_picks``, and no element is picked twice."""
    dim = inputs.get("dim", -1)
    indices = outputs[-1]
    ordered = indices.sort(dim).values if indices.dim() else indices
    twice = (ordered.diff(dim=dim) == 0).sum() if indices.dim() else torch.tensor(0)
    return _picks(inputs | {"dim": dim}, outputs) | {"picked twice": twice}


def _pools(axes: int) -> Shared:
    """The indices count the elements of the last axes taken together."""

    def shared(inputs: Arguments, outputs: Tensors) -> dict[str, Tensor]:
        values, indices = outputs
        flat = inputs["self"].flatten(-axes)
        return {"values": values, "picked": flat.gather(-1, indices.flatten(-axes))}

    return shared


def _unique(_: Arguments, outputs: Tensors) -> dict[str, Tensor]:
    """In any order; indices and counts are empty unless the call requests them."""
    values, places, *counts = outputs
    ordered = values.sort()
    parts = {"values": ordered.values}
    if places.numel():
        parts["picked"] = values[places]
    if counts and counts[0].numel():
        parts["counts"] = counts[0][ordered.indices]
    return parts


SHARED: dict[str, Shared] = {
    **dict.fromkeys(("linalg_svd", "_linalg_svd"), _svd),
    "svd": partial(_svd, adjoint=False),
    **dict.fromkeys(("linalg_eigh", "_linalg_eigh"), _eigh),
    "linalg_eig": _eig,
    "linalg_eigvals": _eigvals,
    **dict.fromkeys(("linalg_qr", "qr"), _qr),
    "geqrf": _geqrf,
    **dict.fromkeys(("linalg_lu_factor", "linalg_lu_factor_ex"), _lu_factor),
    "linalg_lu": _lu,
    "_linalg_det": _by_lu(1),
    "_linalg_slogdet": _by_lu(2),
    "_linalg_solve_ex": _by_lu(1),
    **dict.fromkeys(("linalg_ldl_factor", "linalg_ldl_factor_ex"), _ldl),
    "linalg_lstsq": _lstsq,
    **dict.fromkeys(("max", "min", "median", "nanmedian", "mode", "kthvalue"), _picks),
    **dict.fromkeys(("cummax", "cummin", "argmax", "argmin"), _picks),
    **dict.fromkeys(("sort", "topk", "argsort"), _permutes),
    **dict.fromkeys(("adaptive_max_pool2d", "fractional_max_pool2d"), _pools(2)),
    **dict.fromkeys(("adaptive_max_pool3d", "fractional_max_pool3d"), _pools(3)),
    "max_pool2d_with_indices": _pools(2),
    "max_pool3d_with_indices": _pools(3),
    **dict.fromkeys(("_unique", "_unique2"), _unique),
}
SHAPE_DEPENDS_ON_DEVICE = ("linalg_lstsq",)
