"""What ``torch.compile`` asks of a device. Import it before the first call to ``torch.compile``.

The device compiles nothing itself: with ``mode="lite"``, inductor plans the graph and calls the
kernels of the device. It is a module of its own, because ``torch._inductor`` takes long to import.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.scheduler import BaseScheduling
from torch._inductor.utils import sympy_product

import torch

_NAME = torch._C._get_privateuse1_backend_name()


class Interface(DeviceInterface):  # type: ignore[misc]
    """With it, Dynamo asks for devices and streams."""

    Event = torch.Event
    Stream = torch.Stream
    device = torch.accelerator.device_index
    current_device = staticmethod(torch.accelerator.current_device_index)
    set_device = staticmethod(torch.accelerator.set_device_index)
    device_count = staticmethod(torch.accelerator.device_count)
    is_available = staticmethod(torch.accelerator.is_available)
    current_stream = staticmethod(torch.accelerator.current_stream)
    set_stream = staticmethod(torch.accelerator.set_stream)
    synchronize = staticmethod(torch.accelerator.synchronize)

    @staticmethod
    def is_triton_capable(device: Any = None) -> bool:  # noqa: ARG004 - of the interface
        return False

    @staticmethod
    def get_device_properties(device: Any = None) -> Any:  # noqa: ARG004
        """Inductor plans a reduction by them, before it asks for its code."""
        return SimpleNamespace(multi_processor_count=1)

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:  # noqa: ARG004
        return ""


class Statements(DeviceOpOverrides):  # type: ignore[misc]
    """The Python statements in the program that inductor writes."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"def {name}(_):\n    return 0\n"  # for kernels that inductor compiles

    def set_device(self, device_idx: int) -> str:
        return f"torch.accelerator.set_device_index({device_idx})"

    def synchronize(self) -> str:
        return "torch.accelerator.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.accelerator.device_index({device_idx})"


class Scheduling(BaseScheduling):  # type: ignore[misc]
    """Refuses what inductor would compile: nothing with ``mode="lite"``, else most operators."""

    def group_fn(self, sizes: Any) -> Any:
        return tuple(map(sympy_product, sizes))

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:  # noqa: ARG002
        return False

    def can_fuse_horizontal(self, node1: Any, node2: Any) -> bool:  # noqa: ARG002
        return False

    def codegen_node(self, node: Any) -> NoReturn:
        operators = ", ".join(sorted({str(each.target) for each in node.node.origins}))
        raise NotImplementedError(
            f"{_NAME} has no code generator, which inductor needs for {operators}. "
            'Call torch.compile with mode="lite", or with backend="aot_eager"'
        )

    def flush(self) -> None:
        """Does nothing: no kernel waits to be written."""


register_interface_for_device(_NAME, Interface)
register_device_op_overrides(_NAME, Statements())
register_backend_for_device(_NAME, Scheduling, PythonWrapperCodegen)
