#include <array>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/blas.h"

namespace infini::ops::cuda {
namespace {

using Status = INFINI_OPS_BLAS(Status_t);
using Algorithm = INFINI_OPS_BLAS(LtMatmulAlgo_t);

// The size that torch uses for cuBLAS on an H100; cuBLAS itself allocates the same there.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void CheckBlas(Status status, const char* call) {
  if (status == INFINI_OPS_BLAS_VALUE(_STATUS_SUCCESS)) return;
  throw std::runtime_error(std::string(call) + " failed with " +
                           INFINI_OPS_BLAS(GetStatusString)(status));
}

#define INFINI_OPS_BLAS_CALL(name, ...) \
  CheckBlas(INFINI_OPS_BLAS(name)(__VA_ARGS__), INFINI_OPS_QUOTED(INFINI_OPS_BLAS(name)))

// Lets this thread allocate during graph capture. The allocation does not become part of the graph.
class AllocationScope {
 public:
  AllocationScope() { Exchange(); }
  ~AllocationScope() { Exchange(); }
  AllocationScope(const AllocationScope&) = delete;
  AllocationScope& operator=(const AllocationScope&) = delete;

 private:
  // Ignore an error here: the next call reports it again.
  void Exchange() {
    static_cast<void>(INFINI_OPS_RUNTIME(ThreadExchangeStreamCaptureMode)(&mode_));
  }

  INFINI_OPS_RUNTIME(StreamCaptureMode) mode_ = INFINI_OPS_RUNTIME(StreamCaptureModeRelaxed);
};

auto BlasTypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return INFINI_OPS_DATA_TYPE(R_16F);
    case DataType::kBFloat16:
      return INFINI_OPS_DATA_TYPE(R_16BF);
    case DataType::kFloat64:
      return INFINI_OPS_DATA_TYPE(R_64F);
    default:
      return INFINI_OPS_DATA_TYPE(R_32F);
  }
}

// Sums of float32 are not rounded to TF32; torch does not do so by default either.
auto ComputeTypeOf(DataType type) {
  return type == DataType::kFloat64 ? INFINI_OPS_BLAS_VALUE(_COMPUTE_64F)
                                    : INFINI_OPS_BLAS_VALUE(_COMPUTE_32F);
}

auto OperationOf(const BlasMatrix& matrix) {
  return matrix.transposed ? INFINI_OPS_BLAS_VALUE(_OP_T) : INFINI_OPS_BLAS_VALUE(_OP_N);
}

// alpha and beta in the type of the computation.
class Factor {
 public:
  Factor(double value, DataType type)
      : double_(value), float_(static_cast<float>(value)), is_double_(type == DataType::kFloat64) {}
  const void* data() const {
    return is_double_ ? static_cast<const void*>(&double_) : static_cast<const void*>(&float_);
  }

 private:
  double double_;
  float float_;
  bool is_double_;
};

// An object of cuBLASLt.
template <typename T, Status (*destroy)(T)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (object_) static_cast<void>(destroy(object_));
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  T* address() { return &object_; }
  T get() const { return object_; }

 private:
  T object_ = nullptr;
};

struct Description : Owned<INFINI_OPS_BLAS(LtMatmulDesc_t), &INFINI_OPS_BLAS(LtMatmulDescDestroy)> {
  Description(const BlasProduct& product, const void* bias) {
    INFINI_OPS_BLAS_CALL(LtMatmulDescCreate, address(), ComputeTypeOf(product.data_type),
                         INFINI_OPS_DATA_TYPE(R_32F));
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_DESC_TRANSA), OperationOf(product.a));
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_DESC_TRANSB), OperationOf(product.b));
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_DESC_EPILOGUE), INFINI_OPS_BLAS_VALUE(LT_EPILOGUE_BIAS));
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_DESC_BIAS_POINTER), bias);
  }

  template <typename Name, typename T>
  void Set(Name name, T value) {
    INFINI_OPS_BLAS_CALL(LtMatmulDescSetAttribute, get(), name, &value, sizeof(value));
  }
};

struct Layout : Owned<INFINI_OPS_BLAS(LtMatrixLayout_t), &INFINI_OPS_BLAS(LtMatrixLayoutDestroy)> {
  Layout(DataType type, const BlasMatrix& matrix, std::int64_t rows, std::int64_t columns) {
    if (matrix.transposed) std::swap(rows, columns);
    INFINI_OPS_BLAS_CALL(LtMatrixLayoutCreate, address(), BlasTypeOf(type), rows, columns,
                         matrix.leading);
  }
};

// The largest power of two that divides the address, at most 256: cuBLASLt uses no larger one.
std::uint32_t AlignmentOf(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

// Whether each row or column begins where a vector of 16 bytes may.
bool HasVectors(const BlasMatrix& matrix, DataType type) {
  const auto bytes = matrix.leading * static_cast<std::int64_t>(DataTypeSize(type));
  return AlignmentOf(matrix.data) >= 16 && bytes % 16 == 0;
}

// Whether cuBLASLt rounds only after it has added the bias. For bfloat16 with leading dimensions of
// 33 and 65, it rounded the product too on an H200.
bool RoundsOnce(const BlasProduct& product) {
  if (DataTypeSize(product.data_type) > 2) return true;  // sums are no wider
  return HasVectors(product.a, product.data_type) && HasVectors(product.b, product.data_type) &&
         HasVectors(product.out, product.data_type);
}

struct Preference
    : Owned<INFINI_OPS_BLAS(LtMatmulPreference_t), &INFINI_OPS_BLAS(LtMatmulPreferenceDestroy)> {
  explicit Preference(const BlasProduct& product) {
    INFINI_OPS_BLAS_CALL(LtMatmulPreferenceCreate, address());
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_PREF_MAX_WORKSPACE_BYTES), kWorkspaceBytes);
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), AlignmentOf(product.a.data));
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), AlignmentOf(product.b.data));
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), AlignmentOf(product.out.data));
    Set(INFINI_OPS_BLAS_VALUE(LT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), AlignmentOf(product.out.data));
  }

  template <typename Name, typename T>
  void Set(Name name, T value) {
    INFINI_OPS_BLAS_CALL(LtMatmulPreferenceSetAttribute, get(), name, &value, sizeof(value));
  }
};

// Everything that the choice of an algorithm depends on.
using Problem = std::array<std::int64_t, 14>;

Problem ProblemOf(int device, const BlasProduct& product, const void* bias) {
  return {device,
          static_cast<std::int64_t>(product.data_type),
          product.m,
          product.n,
          product.k,
          product.a.transposed,
          product.b.transposed,
          product.a.leading,
          product.b.leading,
          product.out.leading,
          AlignmentOf(product.a.data),
          AlignmentOf(product.b.data),
          AlignmentOf(product.out.data),
          AlignmentOf(bias)};
}

}  // namespace

struct Blas::Workspace {
  Workspace() {
    const AllocationScope scope;
    INFINI_OPS_CALL(Malloc, &data, kWorkspaceBytes);
  }
  // Waits for the kernels that use the workspace.
  ~Workspace() {
    const AllocationScope scope;
    static_cast<void>(INFINI_OPS_RUNTIME(Free)(data));
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data = nullptr;
};

struct Blas::Cache {
  // Includes the thread, because one handle can mean a different stream in each thread.
  using Place = std::tuple<int, Stream, std::thread::id>;

  // A program with more problems than this does not repeat them, so all are dropped.
  static constexpr std::size_t kMostProblems = 4096;

  std::mutex mutex;
  std::map<int, std::vector<BlasHandle>> idle;  // per device
  std::map<Place, std::shared_ptr<Workspace>> workspaces;
  std::map<Problem, std::optional<Algorithm>> algorithms;

  BlasHandle TakeHandle(int device) {
    std::vector<BlasHandle>& handles = idle[device];
    if (handles.empty()) {
      const AllocationScope scope;
      BlasHandle handle;
      INFINI_OPS_BLAS_CALL(Create, &handle);
      return handle;
    }
    const BlasHandle handle = handles.back();
    handles.pop_back();
    return handle;
  }

  std::shared_ptr<Workspace> WorkspaceOf(int device, Stream stream) {
    const bool is_of_thread = stream == INFINI_OPS_RUNTIME(StreamPerThread);
    const Place place{device, stream,
                      is_of_thread ? std::this_thread::get_id() : std::thread::id()};
    std::shared_ptr<Workspace>& workspace = workspaces[place];
    if (!workspace) workspace = std::make_shared<Workspace>();
    return workspace;
  }

  template <typename Find>
  std::optional<Algorithm> AlgorithmFor(const Problem& problem, Find find) {
    {
      const std::lock_guard lock(mutex);
      const auto known = algorithms.find(problem);
      if (known != algorithms.end()) return known->second;
    }
    const std::optional<Algorithm> algorithm = find();
    const std::lock_guard lock(mutex);
    if (algorithms.size() >= kMostProblems) algorithms.clear();
    algorithms.emplace(problem, algorithm);
    return algorithm;
  }
};

// Never destroyed: the runtime may already be gone at that time.
Blas::Cache& Blas::TheCache() {
  static auto* const cache = new Cache;
  return *cache;
}

Blas::Blas(Device device, Stream stream) : device_(device.index()), stream_(stream) {
  Cache& cache = TheCache();
  const std::lock_guard lock(cache.mutex);
  workspace_ = cache.WorkspaceOf(device_, stream);
  handle_ = cache.TakeHandle(device_);
  // In this order, because setting the stream resets the workspace to the library's own.
  INFINI_OPS_BLAS_CALL(SetStream, handle_, stream);
  INFINI_OPS_BLAS_CALL(SetWorkspace, handle_, workspace_->data, kWorkspaceBytes);
}

Blas::~Blas() {
  Cache& cache = TheCache();
  const std::lock_guard lock(cache.mutex);
  cache.idle[device_].push_back(handle_);
}

void Blas::ClearCache() {
  Cache& cache = TheCache();
  const std::lock_guard lock(cache.mutex);
  for (auto& [device, handles] : cache.idle) {
    if (handles.empty()) continue;
    const DeviceGuard guard({kDevice, device});
    const AllocationScope scope;
    // Each handle is removed, even if destroying it fails.
    for (BlasHandle handle : std::exchange(handles, {})) INFINI_OPS_BLAS_CALL(Destroy, handle);
  }
  cache.workspaces.clear();
  cache.algorithms.clear();
}

void Blas::Multiply(const BlasProduct& product) const {
  const auto type = BlasTypeOf(product.data_type);
  const auto compute_type = ComputeTypeOf(product.data_type);
  const Factor alpha(product.alpha, product.data_type), beta(product.beta, product.data_type);
  const auto& [a, b, out] = std::tie(product.a, product.b, product.out);
  const auto size = [](std::int64_t value) { return static_cast<int>(value); };
  if (product.batch_size == 1) {
    INFINI_OPS_BLAS_CALL(GemmEx, handle_, OperationOf(a), OperationOf(b), size(product.m),
                         size(product.n), size(product.k), alpha.data(), a.data, type,
                         size(a.leading), b.data, type, size(b.leading), beta.data(), out.data,
                         type, size(out.leading), compute_type,
                         INFINI_OPS_BLAS_VALUE(_GEMM_DEFAULT));
  } else {
    INFINI_OPS_BLAS_CALL(GemmStridedBatchedEx, handle_, OperationOf(a), OperationOf(b),
                         size(product.m), size(product.n), size(product.k), alpha.data(), a.data,
                         type, size(a.leading), a.batch_stride, b.data, type, size(b.leading),
                         b.batch_stride, beta.data(), out.data, type, size(out.leading),
                         out.batch_stride, size(product.batch_size), compute_type,
                         INFINI_OPS_BLAS_VALUE(_GEMM_DEFAULT));
  }
}

bool Blas::MultiplyAndAdd(const BlasProduct& product, const void* bias) const {
  if (product.data_type == DataType::kFloat64) return false;  // no kernel for such a bias
  if (!RoundsOnce(product)) return false;
  // A handle of cuBLAS is also one of cuBLASLt.
  const auto handle = reinterpret_cast<INFINI_OPS_BLAS(LtHandle_t)>(handle_);
  const Description description(product, bias);
  const Layout a(product.data_type, product.a, product.m, product.k);
  const Layout b(product.data_type, product.b, product.k, product.n);
  const Layout out(product.data_type, product.out, product.m, product.n);
  const auto find = [&]() -> std::optional<Algorithm> {
    const Preference preference(product);
    INFINI_OPS_BLAS(LtMatmulHeuristicResult_t) result{};
    int count = 0;
    const Status status = INFINI_OPS_BLAS(LtMatmulAlgoGetHeuristic)(
        handle, description.get(), a.get(), b.get(), out.get(), out.get(), preference.get(), 1,
        &result, &count);
    const bool is_found = status == INFINI_OPS_BLAS_VALUE(_STATUS_SUCCESS) && count > 0;
    return is_found ? std::optional(result.algo) : std::nullopt;
  };
  const std::optional<Algorithm> algorithm =
      TheCache().AlgorithmFor(ProblemOf(device_, product, bias), find);
  if (!algorithm) return false;
  const Factor alpha(product.alpha, product.data_type), beta(0, product.data_type);
  INFINI_OPS_BLAS_CALL(LtMatmul, handle, description.get(), alpha.data(), product.a.data, a.get(),
                       product.b.data, b.get(), beta.data(), product.out.data, out.get(),
                       product.out.data, out.get(), &*algorithm, workspace_->data, kWorkspaceBytes,
                       stream_);
  return true;
}

}  // namespace infini::ops::cuda
