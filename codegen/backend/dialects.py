"""The YAML files of existing backends, each in its own form.

A dialect is data: which lists a file has, what they mean, and what the backend's own generator
assumes where the file says nothing. One reader, in ``document``, makes the same model of all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from codegen.nodes import is_plain

# The options of an entry that change nothing here: they choose among libraries of the vendor,
# generate the body of a kernel or Python bindings, or repeat what torch's own schemas have.
_IGNORED_OPTIONS = frozenset(
    {
        *("tags", "autogen", "variants", "structured_inherits", "precomputed", "version"),
        *("derived_type", "op_api", "acl_op", "dvm", "gen_opapi", "internal_format_opapi"),
        *("exposed", "impl_ns", "use_const_ref_for_mutable_tensors"),
    }
)
_STRUCTURED_OPTIONS = frozenset(
    {"structured", "structured_delegate", "override_meta", "override_impl"}
)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How to read one form of file."""

    name: str
    # Dispatch key by list, without the name of the backend: "", "Autograd", "Sparse", "Quantized".
    lists: Mapping[str, str]
    custom: Mapping[str, str] = field(default_factory=dict)  # namespace of torch.ops by list
    external: frozenset[str] = frozenset()  # namespaces whose schemas another library defines
    defaults: Mapping[str, str | bool] = field(default_factory=dict)  # of the keys of the header
    options: frozenset[str] = frozenset({"func", "dispatch", "device_guard", "device_check"})
    # Unknown operators and duplicates are errors, not entries to skip.
    is_strict: bool = False
    versions: tuple[str, ...] = ()  # options that list the versions of torch of an entry
    # Also registers kernels of CompositeImplicitAutograd operators for the autograd key.
    composites_to_autograd: bool = False
    # Operators are structured if the entry says so (None), if torch's are (True; and guarded), or
    # never: the kernels of npu and op-plugin are plain out= functions, whatever the entry says.
    is_structured: bool | None = None
    structured_suffix: str = ""  # of the names of structured kernels
    # Uses torch's own kernels in at::native. An entry without any of these options has no kernel of
    # its own, if it is structured; a kernel that dispatch names can be torch's, too.
    own_kernels: frozenset[str] | None = None

    def knows_option(self, option: str) -> bool:
        return option in self.options | _STRUCTURED_OPTIONS | _IGNORED_OPTIONS


_TORCHGEN_LISTS = {"supported": "", "full_codegen": "", "autograd": "Autograd"}
_OWN = {"custom": "", "custom_autograd": ""}  # "": the first part of cpp_namespace
_NPU: Mapping[str, str | bool] = {
    "backend": "PrivateUse1",
    "cpp_namespace": "at_npu::native",
    "use_out_as_primary": True,
    "device_guard": True,
}

DIALECTS = {
    each.name: each
    for each in (
        Dialect(name="torchgen", lists=_TORCHGEN_LISTS, custom=_OWN, is_strict=True),
        Dialect(name="openreg", lists=_TORCHGEN_LISTS, custom=_OWN, is_strict=True),
        Dialect(name="xla", lists=_TORCHGEN_LISTS),
        Dialect(name="xpu", lists=_TORCHGEN_LISTS),
        Dialect(
            name="npu",
            lists={
                "supported": "",
                "autograd": "Autograd",
                "quant": "Quantized",
                "nestedtensor": "NestedTensor",
            },
            custom={"custom": "npu", "custom_autograd": "npu"},
            defaults=_NPU,
            composites_to_autograd=True,
            is_structured=False,
        ),
        Dialect(
            name="op-plugin",
            lists={
                "official": "",
                "autograd": "Autograd",
                "symint": "",
                "quant": "Quantized",
            },
            custom={"custom": "npu", "custom_autograd": "npu"},
            defaults={**_NPU, "cpp_namespace": "op_plugin"},
            options=frozenset({"func", "dispatch", "device_check", "sparse"}),
            versions=("acl_op", "op_api", "dvm", "sparse"),
            composites_to_autograd=True,
            is_structured=False,
        ),
        Dialect(
            name="mlu",
            lists={"aten": ""},
            custom={"vision": "torchvision", "audio": "torchaudio", "custom": "torch_mlu"},
            external=frozenset({"torchvision", "torchaudio"}),
            defaults={
                "backend": "PrivateUse1",
                "cpp_namespace": "torch_mlu::ops",
                "device_guard": True,
            },
            options=frozenset({"func", "custom_autograd"}),
            structured_suffix="_mlu",
            own_kernels=frozenset({"override_meta", "override_impl"}),
        ),
        Dialect(
            name="musa",
            lists={"": ""},  # the file itself is the list
            defaults={
                "backend": "PrivateUse1",
                "cpp_namespace": "at::musa",
                "use_out_as_primary": True,
            },
            is_structured=True,
            own_kernels=frozenset({"dispatch"}),
        ),
    )
}
AUTO = "auto"


def detect_dialect(root: yaml.Node | None) -> Dialect:
    """The dialect of a file, from its top level; torchgen's if nothing shows another one."""
    if root is None or not isinstance(root, yaml.MappingNode):
        return DIALECTS["musa" if _is_list_of_functions(root) else "torchgen"]
    sections = {key.value: value for key, value in root.value if is_plain(key, "str")}
    backend = sections["backend"].value if "backend" in sections else None
    if "official" in sections:
        return DIALECTS["op-plugin"]
    if "aten" in sections and "backend" not in sections:
        return DIALECTS["mlu"]
    named = {"NPU": "npu", "XPU": "xpu", "XLA": "xla"}
    return DIALECTS[named.get(backend, "torchgen") if isinstance(backend, str) else "torchgen"]


def _is_list_of_functions(root: yaml.Node | None) -> bool:
    return isinstance(root, yaml.SequenceNode) and any(
        isinstance(each, yaml.MappingNode) and any(key.value == "func" for key, _ in each.value)
        for each in root.value[:1]
    )


def names_version(text: list[str], torch_version: str, all_versions: list[str]) -> bool:
    """True if a version list of op-plugin names this torch.

    The list is "all_version", single versions, or the two ends of a range: [v2.5, newest].
    """
    torch = _version(torch_version)
    known = [_version(each) for each in all_versions]
    if text == ["all_version"]:
        return not known or torch in known or torch > max(known)
    ends = [max([torch, *known]) if each == "newest" else _version(each) for each in text]
    if len(text) == 2 and (text[1] == "newest" or ends[0] < ends[1]):
        return ends[0] <= torch <= ends[1]
    return torch in ends


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
