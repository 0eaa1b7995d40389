#ifndef INFINI_OPS_TRITON_LAUNCH_H_
#define INFINI_OPS_TRITON_LAUNCH_H_

#include <stdexcept>
#include <string>

#include "infini/ops/operator.h"
#include "triton/driver.h"

// Functions for the glue code of an operator, in addition to its generated header.
namespace infini::ops::triton {

// True if this build has kernels for the device and the driver can be used.
inline bool HasKernelsFor(Device device) {
  InfiniOpsTritonCall call{};
  call.device = device.index();
  int target;
  int shared_limit;
  return InfiniOpsTritonFindTarget(&call, &target, &shared_limit) == kInfiniOpsTritonOk;
}

// Calls a generated dispatcher on the device and the stream of the invocation.
template <typename Request>
void Launch(const char* name,
            InfiniOpsTritonStatus (*dispatcher)(const Request*, InfiniOpsTritonCall*),
            const Request& request, const Invocation& invocation) {
  InfiniOpsTritonCall call{};
  call.device = invocation.device.index();
  call.stream = invocation.stream;
  const InfiniOpsTritonStatus status = dispatcher(&request, &call);
  if (status == kInfiniOpsTritonOk) return;
  const std::string message = std::string(name) + ": slot 9 can't run this: " + call.message;
  if (status == kInfiniOpsTritonUnsupported) throw std::invalid_argument(message);
  throw std::runtime_error(message);
}

}  // namespace infini::ops::triton

#endif  // INFINI_OPS_TRITON_LAUNCH_H_
