// Generated from codegen/slots.py by `python -m codegen headers`. Do not edit.
#ifndef INFINI_OPS_SLOT_H_
#define INFINI_OPS_SLOT_H_

namespace infini::ops {

// An implementation index. 0 to 7 are free for native and vendor code.
enum class Slot : int {
  kNativeFirst = 0,
  kNativeLast = 7,
  kTorch = 8,
  kTriton = 9,
};

inline constexpr int kSlotCount = 10;

}  // namespace infini::ops

#endif  // INFINI_OPS_SLOT_H_
