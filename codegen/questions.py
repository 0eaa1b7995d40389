"""The ways in which a person names an operator: ``torch.add``, ``aten::add.out``, ``F.conv2d``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

# Longer prefixes first.
_PREFIX = re.compile(
    r"(?:torch\.ops\.aten|torch\.nn\.functional|nn\.functional|torch\._C\._nn|torch\.Tensor"
    r"|infini\.ops|infini::ops|at::native|at::_ops|torch|aten|Tensor|at|F)(?:\.|::)"
)
_MODULE = re.compile(r"^(linalg|fft|special|sparse|nested)\.")
_DUNDER = re.compile(r"__(?P<how>[ir]?)(?P<name>[a-z]+)__")
# Python's operators whose name is not ATen's.
_OPERATORS = {
    "floordiv": "floor_divide",
    "getitem": "index",
    "invert": "bitwise_not",
    "mod": "remainder",
    "setitem": "index_put_",
    "truediv": "div",
}
# Python functions of torch that only call an ATen function of another name.
_PYTHON_NAMES = {"cross_entropy": "cross_entropy_loss"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A name without its decoration, and the overload if it names one."""

    name: str
    overload: str | None = None  # "": the overload without a name; None: all overloads

    @property
    def full_name(self) -> str:
        return ".".join(filter(None, (self.name, self.overload)))


def parse_question(text: str) -> Question:
    """Strip what says where the operator is: ``torch.ops.aten.mm.default`` is ``mm``."""
    bare = text.strip().removesuffix("()").removesuffix("::call")
    if prefix := _PREFIX.match(bare):
        bare = bare[prefix.end() :]
    bare = _MODULE.sub(r"\1_", bare)
    name, dot, overload = bare.partition(".")
    return Question(
        name=name, overload=("" if overload == "default" else overload) if dot else None
    )


def spellings(name: str, known: Collection[str]) -> Iterator[str]:
    """The names of ATen that ``name`` can stand for, the likeliest first."""
    yield name
    if name in _PYTHON_NAMES:
        yield _PYTHON_NAMES[name]
    if found := _DUNDER.fullmatch(name):
        # Of `__iadd__` and `__invert__`, only one is in-place.
        whole = found["how"] + found["name"]
        yield _OPERATORS.get(whole, whole)
        operator = _OPERATORS.get(found["name"], found["name"])
        in_place = f"{operator}_" if found["how"] == "i" else operator
        yield in_place if in_place in known else operator


@dataclass(frozen=True, kw_only=True)
class Removal:
    """An operator that an earlier torch had."""

    successor: str  # a base name, or the only overload
    source: str


def find_removal(name: str, known: Collection[str]) -> Removal | None:
    """How torch removed the operator ``name``; None if it did not.

    ``known`` has the full names of the operators of a torch. The successor is one of them, with the
    overload of ``name`` if there is one, or at least a base name.
    """
    base, _, overload = name.partition(".")
    removal = REMOVED.get(name) or REMOVED.get(base)
    if name in known or removal is None:
        return None
    choices = (f"{removal.successor}.{overload}", removal.successor)
    exact = next(filter(known.__contains__, choices), "")
    is_base = any(each.partition(".")[0] == removal.successor for each in known)
    return replace(removal, successor=exact or removal.successor) if exact or is_base else None


# Operators that torch removed since 1.8, each with its successor, by the last torch that had them:
# of the releases 1.8 to 2.15, or before the pull request of that number. An overload without a
# successor of its own has that of its operator.
_REMOVED_AFTER = {
    "#48594": "fft:fft_fft ifft:fft_ifft irfft:fft_irfft rfft:fft_rfft",
    "#70980": "lstsq:linalg_lstsq",
    "#70981": "matrix_rank:linalg_matrix_rank",
    "#70982": "eig:linalg_eig",
    "#70986": "solve:linalg_solve",
    "#70988": "symeig:linalg_eigh",
    "1.8.1": """
        _addmv_impl_:addmv.out _cholesky_helper:linalg_cholesky_ex
        _lu_solve_helper:linalg_lu_solve _mode:mode _std:std _syevd_helper:_linalg_eigh
        _triangular_solve_helper:triangular_solve _var:var
        adaptive_avg_pool3d_backward:_adaptive_avg_pool3d_backward
        empty_meta:empty.memory_format
        """,
    "1.9.1": """
        _bmm:bmm _cumprod:cumprod _cumsum:cumsum _linalg_solve_out_helper_:_linalg_solve_ex
        _sparse_csr_tensor:sparse_csr_tensor conj.out:conj_physical.out
        segment_reduce_backward:_segment_reduce_backward
        thnn_conv2d_backward:_slow_conv2d_backward thnn_conv2d_forward:_slow_conv2d_forward
        thnn_conv_depthwise2d:_conv_depthwise2d
        thnn_conv_depthwise2d_backward:convolution_backward
        thnn_conv_depthwise2d_forward:_conv_depthwise2d
        """,
    "1.10.2": """
        _baddbmm_mkl_:baddbmm.out _conv_depthwise2d_backward:convolution_backward
        _convolution_nogroup:_convolution _inverse_helper:linalg_inv_ex
        _nnpack_spatial_convolution_backward:convolution_backward
        _nnpack_spatial_convolution_backward_input:convolution_backward
        _nnpack_spatial_convolution_backward_weight:convolution_backward _svd_helper:_linalg_svd
        conv_depthwise3d_backward:convolution_backward
        cudnn_convolution.deprecated:cudnn_convolution
        cudnn_convolution.deprecated2:cudnn_convolution
        cudnn_convolution_backward:convolution_backward
        cudnn_convolution_backward_input:convolution_backward
        cudnn_convolution_backward_weight:convolution_backward
        cudnn_convolution_transpose.deprecated:cudnn_convolution_transpose
        cudnn_convolution_transpose.deprecated2:cudnn_convolution_transpose
        cudnn_convolution_transpose_backward:convolution_backward
        cudnn_convolution_transpose_backward_input:convolution_backward
        cudnn_convolution_transpose_backward_weight:convolution_backward
        index_add.alpha:index_add index_add_.alpha:index_add_
        miopen_convolution_backward:convolution_backward
        miopen_convolution_backward_bias:convolution_backward
        miopen_convolution_backward_input:convolution_backward
        miopen_convolution_backward_weight:convolution_backward
        miopen_convolution_transpose_backward:convolution_backward
        miopen_convolution_transpose_backward_input:convolution_backward
        miopen_convolution_transpose_backward_weight:convolution_backward
        miopen_depthwise_convolution_backward:convolution_backward
        miopen_depthwise_convolution_backward_input:convolution_backward
        miopen_depthwise_convolution_backward_weight:convolution_backward
        mkldnn_convolution_backward:convolution_backward
        mkldnn_convolution_backward_input:convolution_backward
        mkldnn_convolution_backward_weights:convolution_backward nanquantile.new:nanquantile
        nanquantile.new_out:nanquantile.out nanquantile.new_scalar:nanquantile.scalar
        nanquantile.new_scalar_out:nanquantile.scalar_out quantile.new:quantile
        quantile.new_out:quantile.out quantile.new_scalar:quantile.scalar
        quantile.new_scalar_out:quantile.scalar_out slow_conv3d_backward:convolution_backward
        slow_conv_dilated2d_backward:convolution_backward
        slow_conv_dilated3d_backward:convolution_backward
        slow_conv_transpose2d_backward:convolution_backward
        slow_conv_transpose3d_backward:convolution_backward
        """,
    "1.11.0": """
        _cat:cat _index_copy_:index_copy.out
        _native_multi_head_self_attention:_native_multi_head_attention _s_where:where
        _solve_helper:linalg_solve _weight_norm_cuda_interface:_weight_norm_interface
        _weight_norm_cuda_interface_backward:_weight_norm_interface_backward
        nansum.IntList_out:nansum.out nansum.dim_IntList:nansum
        """,
    "1.12.1": """
        _det_lu_based_helper:_linalg_det _linalg_inv_out_helper_:linalg_inv_ex
        _linalg_qr_helper:linalg_qr _mps_linear:linear col2im_backward:im2col
        expand.SymInt:expand im2col_backward:col2im l1_loss.out:l1_loss
        mps_linear_backward:linear_backward narrow_copy.SymInt:narrow_copy
        nested_tensor:_nested_tensor_from_tensor_list
        """,
    "1.13.1": """
        _flash_scaled_dot_product_attention:_flash_attention_forward _mps_max_pool2d:max_pool2d
        _nested_tensor_layer_norm:native_layer_norm _sparse_mask_helper:_sparse_mask_projection
        _symeig_helper:_linalg_eigh
        _upsample_bicubic2d_aa_backward.vec:_upsample_bicubic2d_aa_backward
        _upsample_bilinear2d_aa_backward.vec:_upsample_bilinear2d_aa_backward
        _upsample_nearest_exact1d_backward.vec:_upsample_nearest_exact1d_backward
        _upsample_nearest_exact2d_backward.vec:_upsample_nearest_exact2d_backward
        _upsample_nearest_exact3d_backward.vec:_upsample_nearest_exact3d_backward
        frobenius_norm:frobenius_norm.dim mps_max_pool2d_backward:max_pool2d_backward
        prelu_backward:_prelu_kernel_backward
        upsample_bicubic2d_backward.vec:upsample_bicubic2d_backward
        upsample_bilinear2d_backward.vec:upsample_bilinear2d_backward
        upsample_linear1d_backward.vec:upsample_linear1d_backward
        upsample_nearest1d_backward.vec:upsample_nearest1d_backward
        upsample_nearest2d_backward.vec:upsample_nearest2d_backward
        upsample_nearest3d_backward.vec:upsample_nearest3d_backward
        upsample_trilinear3d_backward.vec:upsample_trilinear3d_backward
        """,
    "2.0.1": """
        _nested_tensor_offsets:_nested_tensor_storage_offsets
        _scaled_dot_product_attention:scaled_dot_product_attention
        """,
    "2.13.0": "cholesky:linalg_cholesky qr:linalg_qr",
}


def _source(last: str) -> str:
    torch = "https://github.com/pytorch/pytorch"
    if last.startswith("#"):
        return f"{torch}/pull/{last[1:]}"
    return f"{torch}/blob/v{last}/aten/src/ATen/native/native_functions.yaml"


REMOVED = {
    name: Removal(successor=successor, source=_source(last))
    for last, pairs in _REMOVED_AFTER.items()
    for name, _, successor in (pair.partition(":") for pair in pairs.split())
}
