#ifndef INFINI_OPS_CPU_PARALLEL_H_
#define INFINI_OPS_CPU_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace infini::ops::cpu {

// How many threads a call may use: torch's intra-op setting where torch is built in, else as many
// as the process has CPUs.
int ThreadCount();

// So many elements are worth another thread: a few microseconds.
inline constexpr std::int64_t kElementsPerThread = 16384;

// Calls `function(begin, end)` on disjoint pieces that cover [0, count), each at least `grain` long
// (but where `count` is shorter), on this thread and on others. Calls from within `function` run on
// the thread that makes them. What `function` throws first is thrown here, when all is at rest.
void ParallelFor(std::int64_t count, std::int64_t grain,
                 const std::function<void(std::int64_t, std::int64_t)>& function);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_PARALLEL_H_
