#ifndef INFINI_OPS_CORE_REQUIREMENTS_H_
#define INFINI_OPS_CORE_REQUIREMENTS_H_

#include <initializer_list>
#include <string>

#include "infini/ops/operator.h"

namespace infini::ops {

// What the implementation takes, and what it got, for a call that it does not take.
std::string Refusal(const Overload& overload, const Implementation& implementation,
                    const Invocation& invocation);

bool BroadcastsTo(Span<std::int64_t> shape, Span<std::int64_t> out);

// True if `out` is the shape that these broadcast to.
bool IsBroadcastOf(Span<std::int64_t> out, std::initializer_list<Span<std::int64_t>> shapes);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_REQUIREMENTS_H_
