"""Calls written by hand, of overloads that take or give sparse, quantized or opaque tensors.

The calls name their outputs too, because torch does not change the layout of a given output.
"""

from __future__ import annotations

import torch

from .dense_calls import Call, Rows


def _dense() -> torch.Tensor:
    return torch.tensor([[1.5, 0.0, -2.0], [0.0, 0.0, 3.0]])


def _coordinates() -> Rows:
    """Sparse tensors in the coordinate layout."""
    dense, sparse = _dense(), _dense().to_sparse()
    empty = torch.zeros(2, 3).to_sparse()
    columns = torch.sparse_coo_tensor(torch.zeros(1, 0).long(), torch.zeros(0, 3), (2, 3))
    yield "_to_sparse.out", {"self": dense, "out": empty}
    yield "_to_sparse.sparse_dim_out", {"self": dense, "sparse_dim": 1, "out": columns}
    diagonals = {"diagonals": torch.randn(2, 3), "offsets": torch.tensor([0, 1]), "shape": [3, 3]}
    yield "_spdiags.out", diagonals | {"out": torch.zeros(3, 3).to_sparse()}
    yield "sparse_mask.out", {"self": torch.randn(2, 3), "mask": sparse, "out": empty}
    repeated = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.rand(2), (2, 3))
    yield "_coalesce.out", {"self": repeated, "out": empty}
    yield "_coalesced.out _coalesced_", {"self": sparse, "coalesced": False, "out": empty}
    yield "_to_dense.out", {"self": sparse}
    copied: Call = {"self": empty, "src": sparse}
    yield "copy_sparse_to_sparse_", copied
    yield "copy_sparse_to_sparse.out", copied | {"self": sparse * 2, "out": empty}
    yield "sparse_coo_tensor.size_out", {"size": [2, 3], "out": sparse}


def _sparse_shapes() -> Rows:
    sparse, filled = _dense().to_sparse(), torch.ones(3, 4).to_sparse()
    larger = {"self": sparse, "size": [3, 4], "sparse_dim": 2, "dense_dim": 0}
    yield "sparse_resize_ sparse_resize_and_clear_", larger
    yield "sparse_resize.out sparse_resize_and_clear.out", larger | {"out": filled}
    template = {"self": sparse, "the_template": filled}
    yield "resize_as_sparse_", template
    yield "resize_as_sparse.out", template | {"out": filled}


def _sparse_mathematics() -> Rows:
    sparse, other = _dense().to_sparse(), torch.tensor([[1.0, 2.0], [0.0, 4.0]]).to_sparse()
    empty = torch.zeros(2, 3).to_sparse()
    product = {"self": sparse, "mat1": other, "mat2": torch.randn(2, 3)}
    yield "sspaddmm.out", product | {"out": empty}
    yield "_sparse_addmm.out", product | {"self": torch.randn(2, 3)}
    yield "_sparse_sum.dim_out", {"self": sparse, "dim": [0], "out": torch.zeros(3).to_sparse()}
    row = {"self": sparse, "dim": 1, "half_to_float": False, "out": empty}
    yield "_sparse_softmax.out _sparse_log_softmax.out", row
    backward = {"grad_output": sparse, "output": sparse * 0.5}
    yield "_sparse_softmax_backward_data.out _sparse_log_softmax_backward_data.out", row | backward
    yield "_sparse_sparse_matmul.out", {"self": other, "other": sparse, "out": empty}


def _compressed() -> Rows:
    """Sparse tensors in the compressed layouts: an output has as many elements as torch writes."""
    dense, blocks = _dense(), torch.randn(4, 4)
    yield "crow_indices_copy.out col_indices_copy.out", {"self": dense.to_sparse_csr()}
    yield "ccol_indices_copy.out row_indices_copy.out", {"self": dense.to_sparse_csc()}
    yield "_to_sparse_csr.out", {"self": dense, "out": (dense * 2).to_sparse_csr()}
    yield "_to_sparse_csc.out", {"self": dense, "out": (dense * 2).to_sparse_csc()}
    size = {"self": blocks, "blocksize": [2, 2]}
    yield "_to_sparse_bsr.out", size | {"out": (blocks * 2).to_sparse_bsr((2, 2))}
    yield "_to_sparse_bsc.out", size | {"out": (blocks * 2).to_sparse_bsc((2, 2))}
    yield "_to_dense.out", {"self": dense.to_sparse_csr()}
    summed = {"self": dense.to_sparse_csr(), "dim": [1], "keepdim": True}
    out = {"out": torch.tensor([[7.0], [8.0]]).to_sparse_csr()}
    yield "_sparse_csr_sum.dim_dtype_out _sparse_csr_prod.dim_dtype_out", summed | out


def _quantized_per_tensor() -> Rows:
    dense, ones = torch.randn(2, 3), torch.ones(2, 3)
    out = torch.quantize_per_tensor(ones, 0.2, 5, torch.quint8)
    number: Call = {"self": dense, "scale": 0.1, "zero_point": 12, "dtype": torch.quint8}
    yield "quantize_per_tensor.out", number | {"out": out}
    tensor = {"scale": torch.tensor(0.1), "zero_point": torch.tensor(12)}
    yield "quantize_per_tensor.tensor_qparams_out", number | tensor | {"out": out}
    tensors = {"tensors": [dense, ones], "dtype": torch.quint8, "out": [out, out]}
    several = {"scales": torch.tensor([0.1, 0.2]), "zero_points": torch.tensor([12, 3])}
    yield "quantize_per_tensor.tensors_out", tensors | several
    dynamic = {"self": dense, "dtype": torch.quint8, "reduce_range": False, "out": out}
    yield "quantize_per_tensor_dynamic.out", dynamic
    whole = {"self": torch.arange(6, dtype=torch.uint8).view(2, 3), "scale": 0.1, "zero_point": 2}
    yield "_make_per_tensor_quantized_tensor.out", whole | {"out": out}
    none = {"size": [0, 3], "memory_format": torch.contiguous_format}
    yield "_empty_affine_quantized.out", none | {"scale": 0.1, "zero_point": 2, "out": out}
    yield "dequantize.self_out int_repr.out", {"self": out}
    yield "dequantize.tensors_out", {"tensors": [out, out]}


def _quantized_per_channel() -> Rows:
    scales, zero_points = torch.tensor([0.3, 0.4]), torch.tensor([1, 2])
    out = torch.quantize_per_channel(torch.ones(2, 3), scales, zero_points, 0, torch.quint8)
    channels: Call = {"scales": torch.tensor([0.1, 0.2]), "zero_points": torch.tensor([7, 3])}
    channels |= {"axis": 0, "out": out}
    dense = {"self": torch.randn(2, 3), "dtype": torch.quint8}
    yield "quantize_per_channel.out", channels | dense
    whole = {"self": torch.arange(6, dtype=torch.uint8).view(2, 3)}
    singular = {"scale": channels["scales"], "zero_point": channels["zero_points"]}
    yield "_make_per_channel_quantized_tensor.out", channels | whole | singular
    none = {"scales": torch.rand(0), "zero_points": torch.zeros(0).long(), "size": [0, 3]}
    none |= {"memory_format": torch.contiguous_format}
    yield "_empty_per_channel_affine_quantized.out", channels | none
    yield "q_per_channel_scales.out q_per_channel_zero_points.out", {"self": out}
    yield "dequantize.self_out int_repr.out", {"self": out}


def _opaque() -> Rows:
    """Tensors in oneDNN's own layout."""
    dense = torch.randn(2, 3)
    yield "to_mkldnn.out", {"self": dense, "out": (dense * 2).to_mkldnn()}
    yield "_to_dense.out", {"self": dense.to_mkldnn()}


def _sparse_products() -> Rows:
    dense = _dense()
    product = {"self": dense.to_sparse(), "mat1": dense.to_sparse(), "mat2": torch.randn(3, 2)}
    rows = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.zeros(2, 2), (2, 2))
    yield "hspmm.out", product | {"out": rows}
    sampled = {"self": dense.to_sparse_csr(), "mat1": torch.randn(2, 4), "mat2": torch.randn(4, 3)}
    yield "sparse_sampled_addmm.out", sampled | {"out": (dense * 2).to_sparse_csr()}


GROUPS = (
    _coordinates,
    _sparse_shapes,
    _sparse_mathematics,
    _compressed,
    _quantized_per_tensor,
    _quantized_per_channel,
    _opaque,
    _sparse_products,
)
