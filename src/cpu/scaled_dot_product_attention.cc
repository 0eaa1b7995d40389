#include "base/scaled_dot_product_attention.h"

#include "cpu/attention.h"

namespace infini::ops {

template <>
struct Operator<ScaledDotProductAttention, Device::Type::kCpu, 0> {
  static void Run(const Invocation& call) {
    if (call.out().element_count() == 0) return;
    Attention attention;
    AttentionOf(call, &attention);
    cpu::Attend(1, attention.batch.count(),
                [&](std::int64_t, std::int64_t head) { return attention.At(head); });
  }
};

INFINI_OPS_REGISTER(ScaledDotProductAttention, Device::Type::kCpu, 0);

}  // namespace infini::ops
