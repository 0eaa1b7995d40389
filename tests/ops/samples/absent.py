"""Why an overload has no sample: a reason reviewed by hand, or one from the dispatcher.

Kept out of ``samples`` itself, which needs nothing but torch.
"""

from __future__ import annotations

from typing import Any

from dispatcher import has_kernel
from reasons import SkipReason

from . import load

_VIEW = "for sparse or nested tensors only, of which torch copies no view"
_NESTED = "gives a nested tensor, which torch cannot write into another"
_REVIEWED: dict[SkipReason, dict[str, str]] = {
    SkipReason.NOTHING_TO_COMPARE: {
        "detach_": "forgets how a tensor came about, and leaves its values",
        "mkldnn_rnn_layer.out": "leaves part of the workspace that it writes uninitialized",
        "requires_grad_": "sets a flag of autograd, and does not change the values",
    },
    SkipReason.OPERAND_NOT_RECORDABLE: {
        "_fw_primal_copy.out": "takes tensors of inference mode only",
        "_make_dual_copy.out": "takes tensors of inference mode only",
        "from_file.out": "takes the name of a file",
        "mkldnn_rnn_layer_backward.out": "takes a workspace of oneDNN's for this processor only",
    },
    # The dispatcher has a kernel, which refuses all arguments.
    SkipReason.NO_KERNEL: {
        "_indices_copy.out": _VIEW,
        "_nested_from_padded.out": _NESTED,
        "_nested_get_values_copy.out": _VIEW,
        "_nested_tensor_from_mask.out": _NESTED,
        "_nested_tensor_from_tensor_list.out": _NESTED,
        "_nested_view_from_buffer_copy.out": _NESTED,
        "_nested_view_from_jagged_copy.out": _NESTED,
        "_pin_memory.out": "copies a tensor of the CPU into an accelerator's pinned memory",
        "_resize_output.out": "resizes tensors without memory only",
        "_sparse_broadcast_to_copy.out": _VIEW,
        "_values_copy.out": _VIEW,
        "indices_copy.out": _VIEW,
        "values_copy.out": _VIEW,
    },
    # The reference comes first.
    SkipReason.VENDOR_DEFECT: {
        "_compute_linear_combination.out": (
            "pytorch: adds to out instead of writing it (torch 2.13)"
        ),
    },
}
REVIEWED = {
    name: (reason, message)
    for reason, messages in _REVIEWED.items()
    for name, message in messages.items()
}


def why_absent(overload: Any, device: str) -> tuple[SkipReason, str]:
    """Returns why an overload of torch's, such as ``torch.ops.aten.add.out``, has no sample."""
    name = overload.name().removeprefix("aten::")  # as the samples have it: "add.out", "abs_"
    if name in REVIEWED:
        return REVIEWED[name]
    if not has_kernel(overload, device):
        return SkipReason.NO_KERNEL, f"torch's dispatcher has no {name} for strided tensors"
    recorded_with = load().header["torch_version"]
    return SkipReason.NO_SAMPLE, f"{name} was not recorded with torch {recorded_with}"
