#ifndef INFINI_OPS_CPU_PARALLEL_H_
#define INFINI_OPS_CPU_PARALLEL_H_

#include <cstdint>

#include "core/function_ref.h"

namespace infini::ops::cpu {

// The number of threads that a call can use: torch's intra-op setting if torch is built in,
// otherwise the number of CPUs of the process.
int ThreadCount();

// Number of elements for which an additional thread is worthwhile: a few microseconds of work.
inline constexpr std::int64_t kElementsPerThread = 16384;

// Calls `function(begin, end)` with disjoint pieces that cover [0, count), on this thread and
// others. A piece has at least `grain` elements, unless `count` is smaller. Nested calls run on the
// calling thread. After all pieces are finished, throws the first exception of `function`.
void ParallelFor(std::int64_t count, std::int64_t grain,
                 FunctionRef<void(std::int64_t, std::int64_t)> function);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_PARALLEL_H_
