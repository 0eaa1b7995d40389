#ifndef INFINI_OPS_TRITON_DRIVER_H_
#define INFINI_OPS_TRITON_DRIVER_H_

#include <stdint.h>

// What generated launchers and the glue in C++ need of NVIDIA's driver, which is opened at the
// first use: the library builds and loads where there is neither driver nor toolkit.

#ifdef __cplusplus
extern "C" {
#endif

typedef enum InfiniOpsTritonStatus {
  kInfiniOpsTritonOk = 0,
  kInfiniOpsTritonUnsupported,  // by this build: another slot may do it
  kInfiniOpsTritonFailed,       // by the driver
} InfiniOpsTritonStatus;

// Where a call runs, and what went wrong with it.
typedef struct InfiniOpsTritonCall {
  int device;
  void* stream;  // a CUstream
  char message[512];
} InfiniOpsTritonCall;

// A kernel and how it is launched; the driver's handles are filled in at its first use.
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
  uint64_t devices;  // a bit for each that it is ready on
};

// The target of this build (90 for sm_90) that runs on the call's device, and how many bytes of
// shared memory a block of it may have.
InfiniOpsTritonStatus InfiniOpsTritonFindTarget(InfiniOpsTritonCall* call, int* target,
                                                int* shared_limit);

// Launches a variant, loading it before if need be; a grid with a zero in it runs nothing.
InfiniOpsTritonStatus InfiniOpsTritonLaunch(InfiniOpsTritonVariant* variant, const int64_t grid[3],
                                            void** arguments, InfiniOpsTritonCall* call);

// Puts a message into the call; returns kInfiniOpsTritonUnsupported.
InfiniOpsTritonStatus InfiniOpsTritonFail(InfiniOpsTritonCall* call, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// The functions that expressions of a build.py may call.
static inline int64_t InfiniOpsCeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static inline int64_t InfiniOpsMin(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t InfiniOpsMax(int64_t a, int64_t b) { return a < b ? b : a; }

#ifdef __cplusplus
}
#endif

#endif  // INFINI_OPS_TRITON_DRIVER_H_
