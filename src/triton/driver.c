#include "triton/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "triton/targets.h"

// Kernels are loaded as libraries (CUDA 12.0 and later). One handle is then valid in all contexts,
// so a call needs no table of contexts, and no stale handle remains if a device is reset.

// Copied from cuda.h, which is not available at build time; tests/triton compares them with it.
typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st* CUcontext;
typedef struct CUlib_st* CUlibrary;
typedef struct CUkern_st* CUkernel;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
enum {
  CUDA_SUCCESS = 0,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

#define FUNCTIONS(X)                                                                            \
  X(cuInit, cuInit, (unsigned flags))                                                           \
  X(cuGetErrorString, cuGetErrorString, (CUresult result, const char** text))                   \
  X(cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                                 \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))   \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) \
  X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext * context))                                    \
  X(cuCtxGetDevice, cuCtxGetDevice, (CUdevice * device))                                        \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context))                                 \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext * context))                                 \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int* mode))          \
  X(cuLibraryLoadData, cuLibraryLoadData,                                                       \
    (CUlibrary * library, const void* code, int* jit_options, void** jit_values, unsigned jits, \
     int* options, void** values, unsigned count))                                              \
  X(cuLibraryUnload, cuLibraryUnload, (CUlibrary library))                                      \
  X(cuLibraryGetKernel, cuLibraryGetKernel,                                                     \
    (CUkernel * kernel, CUlibrary library, const char* name))                                   \
  X(cuKernelGetFunction, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))         \
  X(cuKernelSetAttribute, cuKernelSetAttribute,                                                 \
    (int attribute, int value, CUkernel kernel, CUdevice device))                               \
  X(cuLaunchKernel, cuLaunchKernel,                                                             \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
     unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** arguments,    \
     void** extra))

#define DECLARE(name, symbol, parameters) CUresult(*name) parameters;
static struct {
  FUNCTIONS(DECLARE)
} driver;
#undef DECLARE

// Properties of a device; filled in once.
typedef struct DeviceFacts {
  bool known;  // set last
  CUdevice handle;
  CUcontext primary;  // never released
  int capability;     // 90 for 9.0
  int target;         // 0 if the build has no target for it
  int shared_limit;
} DeviceFacts;

enum { kMaxDevices = 64 };  // bits of InfiniOpsTritonVariant.devices
static DeviceFacts devices[kMaxDevices];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // protects all cached data

// Why the driver can't be used; empty if it can.
static char driver_problem[256];
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static const int kTargets[] = {INFINI_OPS_TRITON_TARGETS};

InfiniOpsTritonStatus InfiniOpsTritonFail(InfiniOpsTritonCall* call, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(call->message, sizeof(call->message), format, arguments);
  va_end(arguments);
  return kInfiniOpsTritonUnsupported;
}

static const char* Text(CUresult result) {
  const char* text = NULL;
  driver.cuGetErrorString(result, &text);
  return text ? text : "unknown error";
}

// Returns from the calling function with a message if a driver function fails.
#define CHECK(call, function, ...)                                                          \
  do {                                                                                      \
    const CUresult result = driver.function(__VA_ARGS__);                                   \
    if (result != CUDA_SUCCESS) {                                                           \
      snprintf((call)->message, sizeof((call)->message), "%s on device %d failed: %s (%d)", \
               #function, (call)->device, Text(result), result);                            \
      return kInfiniOpsTritonFailed;                                                        \
    }                                                                                       \
  } while (false)

static void Open(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(driver_problem, sizeof(driver_problem), "NVIDIA's driver can't be opened: %s",
             dlerror());
    return;
  }
  const char* missing = NULL;
// Casts through a union: C can't cast an object pointer to a function pointer.
#define FIND(name, symbol, parameters)    \
  {                                       \
    union {                               \
      void* object;                       \
      CUresult(*function) parameters;     \
    } found = {dlsym(library, #symbol)};  \
    driver.name = found.function;         \
    if (!found.object) missing = #symbol; \
  }
  FUNCTIONS(FIND)
#undef FIND
  if (missing) {
    snprintf(driver_problem, sizeof(driver_problem),
             "NVIDIA's driver has no %s; expected one for CUDA 12.0 or later", missing);
    return;
  }
  const CUresult result = driver.cuInit(0);
  if (result != CUDA_SUCCESS) {
    snprintf(driver_problem, sizeof(driver_problem), "cuInit failed: %s (%d)", Text(result),
             result);
  }
}

// Machine code also runs on later minor versions of its major version. From 9.0 on, however, Triton
// compiles for exactly one version (sm_90a).
static int TargetFor(int capability) {
  int best = 0;
  for (size_t i = 0; i < sizeof(kTargets) / sizeof(*kTargets); ++i) {
    const int target = kTargets[i];
    const bool runs = target >= 90 ? target == capability
                                   : target / 10 == capability / 10 && target <= capability;
    if (runs && target > best) best = target;
  }
  return best;
}

static InfiniOpsTritonStatus Learn(InfiniOpsTritonCall* call, DeviceFacts* facts) {
  int major;
  int minor;
  CHECK(call, cuDeviceGet, &facts->handle, call->device);
  CHECK(call, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        facts->handle);
  CHECK(call, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        facts->handle);
  CHECK(call, cuDeviceGetAttribute, &facts->shared_limit,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, facts->handle);
  facts->capability = major * 10 + minor;
  facts->target = TargetFor(facts->capability);
  __atomic_store_n(&facts->known, true, __ATOMIC_RELEASE);
  return kInfiniOpsTritonOk;
}

static InfiniOpsTritonStatus FindDevice(InfiniOpsTritonCall* call, DeviceFacts** found) {
  pthread_once(&opened, Open);
  if (*driver_problem) return InfiniOpsTritonFail(call, "%s", driver_problem);
  if (call->device < 0 || call->device >= kMaxDevices) {
    return InfiniOpsTritonFail(call, "device %d is not supported; expected one of the first %d",
                               call->device, kMaxDevices);
  }
  DeviceFacts* facts = *found = &devices[call->device];
  if (__atomic_load_n(&facts->known, __ATOMIC_ACQUIRE)) return kInfiniOpsTritonOk;
  pthread_mutex_lock(&mutex);
  const InfiniOpsTritonStatus status = facts->known ? kInfiniOpsTritonOk : Learn(call, facts);
  pthread_mutex_unlock(&mutex);
  return status;
}

InfiniOpsTritonStatus InfiniOpsTritonFindTarget(InfiniOpsTritonCall* call, int* target,
                                                int* shared_limit) {
  DeviceFacts* facts = NULL;
  const InfiniOpsTritonStatus status = FindDevice(call, &facts);
  if (status != kInfiniOpsTritonOk) return status;
  if (!facts->target) {
    return InfiniOpsTritonFail(call,
                               "device %d has compute capability %d.%d, which this build has no "
                               "kernels for; set TRITON_TARGETS to %d when building",
                               call->device, facts->capability / 10, facts->capability % 10,
                               facts->capability);
  }
  *target = facts->target;
  *shared_limit = facts->shared_limit;
  return kInfiniOpsTritonOk;
}

// The lock must be held, and a context of the device must be current.
static InfiniOpsTritonStatus Load(InfiniOpsTritonVariant* variant, const DeviceFacts* facts,
                                  InfiniOpsTritonCall* call) {
  if (!variant->kernel) {
    CUlibrary library;
    CUkernel kernel;
    CHECK(call, cuLibraryLoadData, &library, variant->cubin, NULL, NULL, 0, NULL, NULL, 0);
    const CUresult result = driver.cuLibraryGetKernel(&kernel, library, variant->entry);
    if (result != CUDA_SUCCESS) driver.cuLibraryUnload(library);
    if (result != CUDA_SUCCESS) {
      snprintf(call->message, sizeof(call->message), "cuLibraryGetKernel of %s failed: %s (%d)",
               variant->entry, Text(result), result);
      return kInfiniOpsTritonFailed;
    }
    variant->kernel = kernel;
  }
  // Load now: otherwise the driver loads at the first launch, which can be part of a graph capture.
  CUfunction function;
  CHECK(call, cuKernelGetFunction, &function, variant->kernel);
  if (variant->shared > 48 * 1024) {
    CHECK(call, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
          variant->shared, variant->kernel, facts->handle);
  }
  const uint64_t bit = UINT64_C(1) << call->device;
  __atomic_fetch_or(&variant->devices, bit, __ATOMIC_RELEASE);
  return kInfiniOpsTritonOk;
}

// Once per variant and device. Loading concerns no stream, but a graph capture on this thread may
// forbid it. So the capture mode is relaxed meanwhile.
static InfiniOpsTritonStatus Prepare(InfiniOpsTritonVariant* variant, const DeviceFacts* facts,
                                     InfiniOpsTritonCall* call) {
  const uint64_t bit = UINT64_C(1) << call->device;
  if (__atomic_load_n(&variant->devices, __ATOMIC_ACQUIRE) & bit) return kInfiniOpsTritonOk;
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CHECK(call, cuThreadExchangeStreamCaptureMode, &mode);
  pthread_mutex_lock(&mutex);
  const bool ready = variant->devices & bit;
  const InfiniOpsTritonStatus status = ready ? kInfiniOpsTritonOk : Load(variant, facts, call);
  pthread_mutex_unlock(&mutex);
  CHECK(call, cuThreadExchangeStreamCaptureMode, &mode);
  return status;
}

static InfiniOpsTritonStatus PrepareAndLaunch(InfiniOpsTritonVariant* variant,
                                              const DeviceFacts* facts, const int64_t grid[3],
                                              void** arguments, InfiniOpsTritonCall* call) {
  const InfiniOpsTritonStatus status = Prepare(variant, facts, call);
  if (status != kInfiniOpsTritonOk) return status;
  // A CUkernel is launched in the current context.
  CHECK(call, cuLaunchKernel, (CUfunction)variant->kernel, (unsigned)grid[0], (unsigned)grid[1],
        (unsigned)grid[2], (unsigned)variant->threads, 1, 1, (unsigned)variant->shared,
        call->stream, arguments, NULL);
  return kInfiniOpsTritonOk;
}

// The primary context, which the runtime API and therefore torch also use.
static InfiniOpsTritonStatus FindPrimary(DeviceFacts* facts, InfiniOpsTritonCall* call,
                                         CUcontext* context) {
  pthread_mutex_lock(&mutex);
  CUresult result = CUDA_SUCCESS;
  if (!facts->primary) result = driver.cuDevicePrimaryCtxRetain(&facts->primary, facts->handle);
  *context = facts->primary;
  pthread_mutex_unlock(&mutex);
  if (result == CUDA_SUCCESS) return kInfiniOpsTritonOk;
  snprintf(call->message, sizeof(call->message),
           "cuDevicePrimaryCtxRetain on device %d failed: %s (%d)", call->device, Text(result),
           result);
  return kInfiniOpsTritonFailed;
}

InfiniOpsTritonStatus InfiniOpsTritonLaunch(InfiniOpsTritonVariant* variant, const int64_t grid[3],
                                            void** arguments, InfiniOpsTritonCall* call) {
  if (grid[0] > INT32_MAX || grid[1] > UINT16_MAX || grid[2] > UINT16_MAX) {
    return InfiniOpsTritonFail(call, "%s: a grid of %lld x %lld x %lld blocks is too large",
                               variant->name, (long long)grid[0], (long long)grid[1],
                               (long long)grid[2]);
  }
  if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return kInfiniOpsTritonOk;
  DeviceFacts* facts = NULL;
  InfiniOpsTritonStatus status = FindDevice(call, &facts);
  if (status != kInfiniOpsTritonOk) return status;
  CUcontext context;
  CUdevice current;
  CHECK(call, cuCtxGetCurrent, &context);
  if (context) CHECK(call, cuCtxGetDevice, &current);
  if (context && current == facts->handle) {
    return PrepareAndLaunch(variant, facts, grid, arguments, call);
  }
  status = FindPrimary(facts, call, &context);
  if (status != kInfiniOpsTritonOk) return status;
  CHECK(call, cuCtxPushCurrent, context);
  status = PrepareAndLaunch(variant, facts, grid, arguments, call);
  CHECK(call, cuCtxPopCurrent, &context);
  return status;
}
