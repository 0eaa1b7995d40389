#ifndef INFINI_OPS_TRITON_DRIVER_H_
#define INFINI_OPS_TRITON_DRIVER_H_

#include <stdint.h>

// The parts of NVIDIA's driver that generated launchers and the C++ glue code use. The driver is
// opened at the first use: the library can be built and loaded without a driver or a toolkit.

#ifdef __cplusplus
extern "C" {
#endif

typedef enum InfiniOpsTritonStatus {
  kInfiniOpsTritonOk = 0,
  kInfiniOpsTritonUnsupported,  // by this build; another slot may support the call
  kInfiniOpsTritonFailed,       // an error of the driver
} InfiniOpsTritonStatus;

// The device and stream of a call, and its error message.
typedef struct InfiniOpsTritonCall {
  int device;
  void* stream;  // a CUstream
  char message[512];
} InfiniOpsTritonCall;

// A kernel and its launcher. The driver's handles are filled in at the first use.
typedef struct InfiniOpsTritonVariant InfiniOpsTritonVariant;
struct InfiniOpsTritonVariant {
  const char* name;
  const void* cubin;
  const char* entry;
  int threads;  // in a block
  int shared;   // bytes of dynamic shared memory
  InfiniOpsTritonStatus (*launch)(InfiniOpsTritonVariant* variant, const void* request,
                                  InfiniOpsTritonCall* call);
  void* kernel;      // a CUkernel
  uint64_t devices;  // one bit for each device on which it is loaded
};

// The target of this build (90 for sm_90) that runs on the call's device, and the bytes of shared
// memory that a block can have there.
InfiniOpsTritonStatus InfiniOpsTritonFindTarget(InfiniOpsTritonCall* call, int* target,
                                                int* shared_limit);

// Launches a variant, and loads it first if necessary. A grid that contains zero runs nothing.
InfiniOpsTritonStatus InfiniOpsTritonLaunch(InfiniOpsTritonVariant* variant, const int64_t grid[3],
                                            void** arguments, InfiniOpsTritonCall* call);

// Stores a message in the call; returns kInfiniOpsTritonUnsupported.
InfiniOpsTritonStatus InfiniOpsTritonFail(InfiniOpsTritonCall* call, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// Functions that expressions of a build.py can call.
static inline int64_t InfiniOpsCeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static inline int64_t InfiniOpsMin(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t InfiniOpsMax(int64_t a, int64_t b) { return a < b ? b : a; }

#ifdef __cplusplus
}
#endif

#endif  // INFINI_OPS_TRITON_DRIVER_H_
