"""Sparse, quantized and opaque tensors: taken apart into dense ones, and put together again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Parts = Sequence[torch.Tensor]


def kind_of(tensor: torch.Tensor) -> str:
    """Names how a tensor stores its elements: "strided", "sparse_coo", "per_tensor_affine"."""
    return str(tensor.qscheme() if tensor.is_quantized else tensor.layout).removeprefix("torch.")


def take_apart(tensor: torch.Tensor) -> Parts:
    """Returns dense tensors with all content but the shape; values first."""
    kind = kind_of(tensor)
    if kind == "sparse_coo":
        return tensor._values(), tensor._indices(), torch.tensor(tensor.is_coalesced())
    if kind in ("sparse_csr", "sparse_bsr"):
        return tensor.values(), tensor.crow_indices(), tensor.col_indices()
    if kind in ("sparse_csc", "sparse_bsc"):
        return tensor.values(), tensor.ccol_indices(), tensor.row_indices()
    if kind == "per_tensor_affine":
        scale = torch.tensor(tensor.q_scale(), dtype=torch.float64)
        return tensor.int_repr(), scale, torch.tensor(tensor.q_zero_point())
    if kind == "per_channel_affine":
        axis = torch.tensor(tensor.q_per_channel_axis())
        scales, zero_points = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        return tensor.int_repr(), scales, zero_points, axis
    if kind == "_mkldnn":
        return (tensor.to_dense(),)
    return (tensor,)


def put_together(kind: str, shape: Sequence[int], parts: Parts) -> torch.Tensor:
    """Undoes ``take_apart``."""
    values, *rest = parts
    if kind == "sparse_coo":
        indices, coalesced = rest
        return torch.sparse_coo_tensor(indices, values, shape)._coalesced_(bool(coalesced))
    if kind.startswith("sparse_"):
        layout = getattr(torch, kind)
        return torch.sparse_compressed_tensor(*rest, values, shape, layout=layout)
    if kind == "per_tensor_affine":
        scale, zero_point = (part.item() for part in rest)
        return torch._make_per_tensor_quantized_tensor(values, scale, zero_point)
    if kind == "per_channel_affine":
        scales, zero_points, axis = rest
        return torch._make_per_channel_quantized_tensor(values, scales, zero_points, int(axis))
    if kind == "_mkldnn":
        return values.to_mkldnn()
    raise ValueError(f"a sample has a tensor of unknown kind '{kind}'")


def dense_parts(tensor: torch.Tensor) -> Parts:
    """Returns dense tensors, which are equal if two tensors of one kind are equal."""
    if kind_of(tensor) == "strided":
        return (tensor,)
    # Copied, because a sparse tensor has more memory than elements in use.
    return torch.tensor(tensor.shape), *(part.clone() for part in take_apart(tensor))
