// Generated from codegen/slot_times.json by `python -m codegen headers`. Do not edit.
#ifndef INFINI_OPS_SLOT_ORDER_H_
#define INFINI_OPS_SLOT_ORDER_H_

#include "infini/ops/device.h"

namespace infini::ops {

// The measured slots of an operator on a device, the fastest first. A call tries them in this
// order, and then the others by number.
struct SlotOrder {
  const char* operator_name;
  Device::Type device;
  int count;
  int slots[2];
};

// Measured on: NVIDIA H200, 2026-11-27, commit 5cbf1123.
inline constexpr SlotOrder kSlotOrders[] = {
    {"add", Device::Type::kNvidia, 2, {9, 0}},
    {"causal_softmax", Device::Type::kNvidia, 2, {0, 9}},
    {"gemm", Device::Type::kNvidia, 2, {0, 9}},
    {"rms_norm", Device::Type::kNvidia, 2, {9, 0}},
    {"swiglu", Device::Type::kNvidia, 2, {0, 9}},
};

}  // namespace infini::ops

#endif  // INFINI_OPS_SLOT_ORDER_H_
