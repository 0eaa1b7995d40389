// Replaces the part of NVIDIA's driver, libcuda.so.1, that src/triton/driver.c uses: checks what
// the driver would check, runs nothing, and appends every call as a line of JSON to the file
// RECORDING_DRIVER_LOG. The devices have the compute capabilities RECORDING_DRIVER_DEVICES
// ("8.0,9.0"); RECORDING_DRIVER_FAIL ("cuLaunchKernel:719") lets a function fail.
//
// The name, the parameters and the requirements of a kernel are read from the machine code itself,
// not from the generator. The code is kept beside the file of calls, as `<file>.<library>.cubin`.

#define _GNU_SOURCE
#include <elf.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Values of cuda.h.
enum {
  kSuccess = 0,
  kInvalidValue = 1,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kInvalidHandle = 400,
  kNotFound = 500,
  kMajor = 75,
  kMinor = 76,
  kSharedLimit = 97,
  kMaxDynamicShared = 8,
};

enum { kMaxDevices = 8, kMaxParameters = 64, kMaxKernels = 4, kMaxLibraries = 1024, kDepth = 16 };
static const unsigned kSharedWithoutAttribute = 48 * 1024;

typedef struct Context {
  int device;
  int capability;  // 90 for 9.0
  int references;
} Context;

typedef struct Kernel {
  bool used;
  char name[128];
  const struct Library* library;
  unsigned parameter_count;
  unsigned parameter_sizes[kMaxParameters];
  unsigned required_block[3];  // 0: any
  unsigned shared_limit[kMaxDevices];
} Kernel;

typedef struct Library {
  bool used;
  int architecture;
  Kernel kernels[kMaxKernels];
} Library;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
static int device_count;
static Context contexts[kMaxDevices];
static Library libraries[kMaxLibraries];
static __thread Context* stack[kDepth];
static __thread int depth;

// The details of the call that is being recorded, beside its name and result.
static __thread char details[16384];

static void Detail(const char* format, ...) __attribute__((format(printf, 1, 2)));
static void Detail(const char* format, ...) {
  const size_t size = strlen(details);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(details + size, sizeof(details) - size, format, arguments);
  va_end(arguments);
}

static int Record(const char* name, int result) {
  const char* path = getenv("RECORDING_DRIVER_LOG");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (file) {
    fprintf(file, "{\"call\": \"%s\", \"result\": %d, \"thread\": %d%s}\n", name, result, gettid(),
            details);
    fclose(file);
  }
  *details = 0;
  return result;
}

// The error of the function in RECORDING_DRIVER_FAIL.
static int Demanded(const char* name) {
  const char* demand = getenv("RECORDING_DRIVER_FAIL");
  const size_t size = strlen(name);
  return demand && !strncmp(demand, name, size) && demand[size] == ':' ? atoi(demand + size + 1)
                                                                       : kSuccess;
}

// Defines a function of the driver: its checks under the lock, then its record.
#define DRIVER(name, parameters, arguments)    \
  static int Do_##name parameters;             \
  int name parameters {                        \
    pthread_mutex_lock(&mutex);                \
    int result = Demanded(#name);              \
    if (!result) result = Do_##name arguments; \
    Record(#name, result);                     \
    pthread_mutex_unlock(&mutex);              \
    return result;                             \
  }                                            \
  static int Do_##name parameters

static Context* Current(void) { return depth ? stack[depth - 1] : NULL; }

static bool IsDevice(int device) { return 0 <= device && device < device_count; }

static Kernel* FindKernel(const void* handle) {
  for (Library* library = libraries; library < libraries + kMaxLibraries; ++library) {
    for (Kernel* kernel = library->kernels; kernel < library->kernels + kMaxKernels; ++kernel) {
      if (kernel == handle && library->used && kernel->used) return kernel;
    }
  }
  return NULL;
}

static bool IsLibrary(const Library* library) {
  return libraries <= library && library < libraries + kMaxLibraries && library->used;
}

// Machine code runs on later minor versions of its major one; from 9.0 on, Triton's code is for one
// version only (sm_90a).
static bool Runs(const Library* library, const Context* context) {
  const int architecture = library->architecture;
  if (architecture >= 90) return architecture == context->capability;
  return architecture / 10 == context->capability / 10 && architecture <= context->capability;
}

// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
static int SharedLimit(int capability) {
  switch (capability) {
    case 75:
      return 64 * 1024;
    case 80:
      return 163 * 1024;
    case 90:
      return 227 * 1024;
    default:
      return 99 * 1024;
  }
}

DRIVER(cuInit, (unsigned flags), (flags)) {
  if (flags) return kInvalidValue;
  if (initialized) return kSuccess;
  const char* text = getenv("RECORDING_DRIVER_DEVICES");
  if (!text) text = "9.0";
  int major, minor, size;
  while (sscanf(text, "%d.%d%n", &major, &minor, &size) == 2 && device_count < kMaxDevices) {
    contexts[device_count] = (Context){device_count, major * 10 + minor, 0};
    ++device_count;
    text += size + (text[size] == ',');
  }
  if (!device_count) return kNoDevice;
  initialized = true;
  return kSuccess;
}

int cuGetErrorString(int result, const char** text) {
  static __thread char buffer[32];
  snprintf(buffer, sizeof(buffer), "recorded error %d", result);
  *text = buffer;
  return kSuccess;
}

DRIVER(cuDeviceGet, (int* device, int ordinal), (device, ordinal)) {
  Detail(", \"device\": %d", ordinal);
  if (!initialized) return kNotInitialized;
  if (!IsDevice(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

DRIVER(cuDeviceGetAttribute, (int* value, int attribute, int device), (value, attribute, device)) {
  Detail(", \"device\": %d, \"attribute\": %d", device, attribute);
  if (!initialized) return kNotInitialized;
  if (!IsDevice(device)) return kInvalidDevice;
  const int capability = contexts[device].capability;
  switch (attribute) {
    case kMajor:
      *value = capability / 10;
      return kSuccess;
    case kMinor:
      *value = capability % 10;
      return kSuccess;
    case kSharedLimit:
      *value = SharedLimit(capability);
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

DRIVER(cuDevicePrimaryCtxRetain, (Context * *context, int device), (context, device)) {
  Detail(", \"device\": %d", device);
  if (!initialized) return kNotInitialized;
  if (!IsDevice(device)) return kInvalidDevice;
  *context = &contexts[device];
  ++contexts[device].references;
  return kSuccess;
}

DRIVER(cuCtxGetCurrent, (Context * *context), (context)) {
  if (!initialized) return kNotInitialized;
  *context = Current();
  return kSuccess;
}

DRIVER(cuCtxGetDevice, (int* device), (device)) {
  if (!Current()) return kInvalidContext;
  *device = Current()->device;
  return kSuccess;
}

DRIVER(cuCtxPushCurrent_v2, (Context * context), (context)) {
  if (!initialized) return kNotInitialized;
  const bool is_context = contexts <= context && context < contexts + device_count;
  if (!is_context || !context->references || depth == kDepth) return kInvalidContext;
  Detail(", \"device\": %d", context->device);
  stack[depth++] = context;
  return kSuccess;
}

DRIVER(cuCtxPopCurrent_v2, (Context * *context), (context)) {
  if (!Current()) return kInvalidContext;
  Detail(", \"device\": %d", Current()->device);
  *context = stack[--depth];
  return kSuccess;
}

DRIVER(cuThreadExchangeStreamCaptureMode, (int* mode), (mode)) {
  static __thread int current;
  if (*mode < 0 || *mode > 2) return kInvalidValue;
  const int previous = current;
  current = *mode;
  *mode = previous;
  Detail(", \"mode\": %d", current);
  return kSuccess;
}

// The attributes of a `.nv.info.<kernel>` section: format, attribute, 16 bits of value or of size.
static void ReadAttributes(const uint8_t* begin, const uint8_t* end, Kernel* kernel) {
  enum { kHasSize = 4, kRequiredBlock = 0x10, kParameter = 0x17 };
  for (const uint8_t* at = begin; at + 4 <= end;) {
    uint16_t size;
    uint32_t values[3] = {0};
    memcpy(&size, at + 2, sizeof(size));
    memcpy(values, at + 4, at[0] == kHasSize && size >= 12 ? sizeof(values) : 0);
    if (at[1] == kRequiredBlock) memcpy(kernel->required_block, values, sizeof(values));
    if (at[1] == kParameter) {
      // An index into the symbols; ordinal and offset; alignment, bank and, above, the size.
      const unsigned ordinal = values[1] & 0xffff;
      if (ordinal < kMaxParameters) kernel->parameter_sizes[ordinal] = values[2] >> 18;
      if (ordinal >= kernel->parameter_count) kernel->parameter_count = ordinal + 1;
    }
    at += 4 + (at[0] == kHasSize ? size : 0);
  }
}

static const Elf64_Shdr* Section(const uint8_t* image, unsigned index) {
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)image;
  return (const Elf64_Shdr*)(image + header->e_shoff) + index;
}

static void ReadKernel(const uint8_t* image, const char* name, Kernel* kernel) {
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)image;
  const char* names = (const char*)image + Section(image, header->e_shstrndx)->sh_offset;
  char wanted[160];
  snprintf(kernel->name, sizeof(kernel->name), "%s", name);
  snprintf(wanted, sizeof(wanted), ".nv.info.%s", name);
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr* section = Section(image, i);
    const uint8_t* begin = image + section->sh_offset;
    if (strcmp(names + section->sh_name, wanted)) continue;
    ReadAttributes(begin, begin + section->sh_size, kernel);
  }
}

// The entry points are the functions with this mark in the symbol table.
static void ReadKernels(const uint8_t* image, const Elf64_Shdr* symbols, Library* library) {
  enum { kEntry = 0x10 };
  const char* names = (const char*)image + Section(image, symbols->sh_link)->sh_offset;
  const Elf64_Sym* begin = (const Elf64_Sym*)(image + symbols->sh_offset);
  Kernel* kernel = library->kernels;
  for (const Elf64_Sym* symbol = begin; symbol < begin + symbols->sh_size / sizeof(*begin);
       ++symbol) {
    if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !(symbol->st_other & kEntry)) continue;
    if (kernel == library->kernels + kMaxKernels) abort();
    ReadKernel(image, names + symbol->st_name, kernel);
    kernel->library = library;
    kernel->used = true;
    ++kernel;
  }
}

static int ReadLibrary(const uint8_t* image, Library* library) {
  enum { kMachineCuda = 190, kOsAbiSinceSm90 = 0x41 };
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)image;
  if (memcmp(image, ELFMAG, SELFMAG) || header->e_machine != kMachineCuda) return kInvalidImage;
  const int shift = header->e_ident[EI_OSABI] == kOsAbiSinceSm90 ? 8 : 0;
  library->architecture = header->e_flags >> shift & 0xff;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr* section = Section(image, i);
    if (section->sh_type == SHT_SYMTAB) ReadKernels(image, section, library);
  }
  return kSuccess;
}

// The machine code only, to the end of its last section or table: other data follows in memory.
static size_t ImageSize(const uint8_t* image) {
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)image;
  size_t size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
  const size_t segments = header->e_phoff + (size_t)header->e_phnum * header->e_phentsize;
  if (segments > size) size = segments;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr* section = Section(image, i);
    const size_t end = section->sh_offset + section->sh_size;
    if (section->sh_type != SHT_NOBITS && end > size) size = end;
  }
  return size;
}

static void KeepImage(const uint8_t* image, long library) {
  char path[4096];
  const char* log = getenv("RECORDING_DRIVER_LOG");
  snprintf(path, sizeof(path), "%s.%ld.cubin", log ? log : "", library);
  FILE* file = log ? fopen(path, "w") : NULL;
  if (!file) return;
  fwrite(image, 1, ImageSize(image), file);
  fclose(file);
}

DRIVER(cuLibraryLoadData,
       (Library * *library, const void* code, int* jit_options, void** jit_values, unsigned jits,
        int* options, void** values, unsigned count),
       (library, code, jit_options, jit_values, jits, options, values, count)) {
  (void)jit_options, (void)jit_values, (void)options, (void)values;
  if (!initialized) return kNotInitialized;
  if (jits || count) return kInvalidValue;
  Library* place = libraries;
  while (place->used) ++place;
  const int result = ReadLibrary(code, place);
  if (result) return result;
  place->used = true;
  KeepImage(code, place - libraries);
  Detail(", \"library\": %ld, \"architecture\": %d, \"kernels\": [", (long)(place - libraries),
         place->architecture);
  for (Kernel* kernel = place->kernels; kernel->used; ++kernel) {
    Detail("%s\"%s\"", kernel == place->kernels ? "" : ", ", kernel->name);
  }
  Detail("]");
  *library = place;
  return kSuccess;
}

DRIVER(cuLibraryUnload, (Library * library), (library)) {
  if (!IsLibrary(library)) return kInvalidHandle;
  memset(library, 0, sizeof(*library));
  return kSuccess;
}

DRIVER(cuLibraryGetKernel, (Kernel * *found, Library* library, const char* name),
       (found, library, name)) {
  Detail(", \"kernel\": \"%s\"", name);
  if (!IsLibrary(library)) return kInvalidHandle;
  for (Kernel* kernel = library->kernels; kernel->used; ++kernel) {
    if (strcmp(kernel->name, name)) continue;
    *found = kernel;
    return kSuccess;
  }
  return kNotFound;
}

DRIVER(cuKernelGetFunction, (void** function, Kernel* kernel), (function, kernel)) {
  if (!FindKernel(kernel)) return kInvalidHandle;
  Detail(", \"kernel\": \"%s\"", kernel->name);
  if (!Current()) return kInvalidContext;
  if (!Runs(kernel->library, Current())) return kNoBinaryForGpu;
  Detail(", \"device\": %d", Current()->device);
  *function = kernel;
  return kSuccess;
}

DRIVER(cuKernelSetAttribute, (int attribute, int value, Kernel* kernel, int device),
       (attribute, value, kernel, device)) {
  Detail(", \"device\": %d, \"attribute\": %d, \"value\": %d", device, attribute, value);
  if (!FindKernel(kernel)) return kInvalidHandle;
  Detail(", \"kernel\": \"%s\"", kernel->name);
  if (!IsDevice(device)) return kInvalidDevice;
  if (attribute != kMaxDynamicShared || value < 0) return kInvalidValue;
  if (value > SharedLimit(contexts[device].capability)) return kInvalidValue;
  kernel->shared_limit[device] = (unsigned)value;
  return kSuccess;
}

static int CheckLaunch(const Kernel* kernel, const unsigned grid[3], const unsigned block[3],
                       unsigned shared) {
  if (!Current()) return kInvalidContext;
  if (!Runs(kernel->library, Current())) return kNoBinaryForGpu;
  if (!grid[0] || !grid[1] || !grid[2]) return kInvalidValue;
  if (grid[0] > INT32_MAX || grid[1] > UINT16_MAX || grid[2] > UINT16_MAX) return kInvalidValue;
  const unsigned* required = kernel->required_block;
  if (required[0] && memcmp(required, block, 3 * sizeof(*block))) return kInvalidValue;
  const unsigned allowed = kernel->shared_limit[Current()->device];
  if (shared > kSharedWithoutAttribute && shared > allowed) return kInvalidValue;
  return kSuccess;
}

// The bytes of each parameter, in the order of memory.
static void DetailParameters(const Kernel* kernel, void** arguments) {
  Detail(", \"parameters\": [");
  for (unsigned i = 0; i < kernel->parameter_count; ++i) {
    Detail("%s\"", i ? ", " : "");
    const uint8_t* bytes = arguments[i];
    for (unsigned j = 0; j < kernel->parameter_sizes[i]; ++j) Detail("%02x", bytes[j]);
    Detail("\"");
  }
  Detail("]");
}

DRIVER(cuLaunchKernel,
       (Kernel * kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
        unsigned block_y, unsigned block_z, unsigned shared, void* stream, void** arguments,
        void** extra),
       (kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments,
        extra)) {
  const unsigned grid[] = {grid_x, grid_y, grid_z};
  const unsigned block[] = {block_x, block_y, block_z};
  if (!initialized) return kNotInitialized;
  if (!FindKernel(kernel)) return kInvalidHandle;
  if (extra) return kInvalidValue;
  Detail(", \"kernel\": \"%s\", \"library\": %ld, \"device\": %d", kernel->name,
         (long)(kernel->library - libraries), Current() ? Current()->device : -1);
  Detail(", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u]", grid_x, grid_y, grid_z, block_x,
         block_y, block_z);
  Detail(", \"shared\": %u, \"stream\": %" PRIuPTR, shared, (uintptr_t)stream);
  DetailParameters(kernel, arguments);
  return CheckLaunch(kernel, grid, block, shared);
}
