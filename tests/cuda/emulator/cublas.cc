#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <type_traits>

#include "cublasLt.h"
#include "cublas_v2.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

// Arguments are checked by the rules of the library's reference:
// https://docs.nvidia.com/cuda/cublas
struct cublasContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute_type;
  cublasOperation_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  std::int64_t rows, columns, leading;
};

struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::array<std::uint32_t, 4> alignments = {256, 256, 256, 256};  // of a, b, c and d
};

namespace {

// A matrix stored by columns, or by rows if transposed.
struct Matrix {
  cublasOperation_t operation;
  cudaDataType type;
  std::int64_t leading;
  std::int64_t batch_stride = 0;

  bool IsValid(std::int64_t rows, std::int64_t columns) const {
    return leading >= std::max<std::int64_t>(1, operation == CUBLAS_OP_N ? rows : columns);
  }
  std::int64_t At(std::int64_t row, std::int64_t column) const {
    return operation == CUBLAS_OP_N ? row + column * leading : column + row * leading;
  }
};

struct Product {
  std::int64_t m, n, k;
  Matrix a, b, c;
  cublasComputeType_t compute_type;
  int batch_count = 1;
  const void* bias = nullptr;  // of the rows of c
  bool rounds_before_bias = false;

  bool IsValid() const {
    return m >= 0 && n >= 0 && k >= 0 && batch_count >= 0 && a.IsValid(m, k) && b.IsValid(k, n) &&
           c.IsValid(m, n);
  }
};

template <typename T, typename Sum>
void Multiply(const Product& product, const void* alpha_at, const T* a, const T* b,
              const void* beta_at, T* c) {
  const Sum alpha = *static_cast<const Sum*>(alpha_at), beta = *static_cast<const Sum*>(beta_at);
  for (std::int64_t row = 0; row < product.m; ++row) {
    for (std::int64_t column = 0; column < product.n; ++column) {
      Sum sum = 0;
      for (std::int64_t i = 0; i < product.k; ++i) {
        sum += static_cast<Sum>(a[product.a.At(row, i)]) *
               static_cast<Sum>(b[product.b.At(i, column)]);
      }
      T& out = c[product.c.At(row, column)];
      sum *= alpha;
      if (beta != 0) sum += beta * static_cast<Sum>(out);  // else it may be NaN
      if (product.rounds_before_bias) sum = static_cast<Sum>(static_cast<T>(sum));
      if (product.bias) sum += static_cast<Sum>(static_cast<const T*>(product.bias)[row]);
      out = static_cast<T>(sum);
    }
  }
}

template <typename T, typename Sum>
void MultiplyBatch(const Product& product, const void* alpha, const void* a, const void* b,
                   const void* beta, void* c) {
  for (std::int64_t i = 0; i < product.batch_count; ++i) {
    Multiply<T, Sum>(product, alpha, static_cast<const T*>(a) + i * product.a.batch_stride,
                     static_cast<const T*>(b) + i * product.b.batch_stride, beta,
                     static_cast<T*>(c) + i * product.c.batch_stride);
  }
}

cublasStatus_t Run(const Product& product, const void* alpha, const void* a, const void* b,
                   const void* beta, void* c, cudaStream_t stream) {
  if (!product.IsValid()) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaDataType type = product.c.type;
  const bool is_double = type == CUDA_R_64F;
  if (product.a.type != type || product.b.type != type ||
      is_double != (product.compute_type == CUBLAS_COMPUTE_64F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  emulator::Launch launch;
  launch.stream = stream;
  cudaGetDevice(&launch.device);
  emulator::Record(launch);
  const auto run = type == CUDA_R_16F    ? MultiplyBatch<__half, float>
                   : type == CUDA_R_16BF ? MultiplyBatch<__nv_bfloat16, float>
                   : is_double           ? MultiplyBatch<double, double>
                                         : MultiplyBatch<float, float>;
  run(product, alpha, a, b, beta, c);
  return CUBLAS_STATUS_SUCCESS;
}

// A handle belongs to the device that was the current one at its creation.
bool IsOfCurrentDevice(cublasHandle_t handle) {
  int device = 0;
  cudaGetDevice(&device);
  return handle && handle->device == device;
}

template <typename T>
cublasStatus_t Assign(T& attribute, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&attribute, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename... Values>
cublasStatus_t New(T** created, Values... values) {
  *created = new T{values...};
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t Delete(T* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

bool HasShape(const cublasLtMatrixLayoutOpaque_t& layout, cublasOperation_t operation,
              std::int64_t rows, std::int64_t columns) {
  if (operation == CUBLAS_OP_T) std::swap(rows, columns);
  return layout.rows == rows && layout.columns == columns && layout.leading >= rows && rows > 0 &&
         columns > 0;
}

// All of a problem but its pointers.
std::array<std::uint64_t, 11> ProblemOf(const cublasLtMatmulDescOpaque_t& description,
                                        const cublasLtMatrixLayoutOpaque_t& a,
                                        const cublasLtMatrixLayoutOpaque_t& b,
                                        const cublasLtMatrixLayoutOpaque_t& c) {
  const auto value = [](auto number) { return static_cast<std::uint64_t>(number); };
  return {value(description.compute_type),
          value(description.transa),
          value(description.transb),
          value(description.epilogue),
          value(c.type),
          value(c.rows),
          value(c.columns),
          value(c.leading),
          value(a.rows + a.columns),
          value(a.leading),
          value(b.leading)};
}

}  // namespace

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "?";
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  New(handle);
  cudaGetDevice(&(*handle)->device);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) { return Delete(handle); }

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  return emulator::HasMemory(handle->device, workspace, bytes) ? CUBLAS_STATUS_SUCCESS
                                                               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute_type,
                            cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, 0, b,
                                    b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, compute_type,
                                    algorithm);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int lda, long long stride_a, const void* b,
                                          cudaDataType b_type, int ldb, long long stride_b,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long stride_c, int batch_count,
                                          cublasComputeType_t compute_type, cublasGemmAlgo_t) {
  if (!IsOfCurrentDevice(handle)) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{m,
                        n,
                        k,
                        {transa, a_type, lda, stride_a},
                        {transb, b_type, ldb, stride_b},
                        {CUBLAS_OP_N, c_type, ldc, stride_c},
                        compute_type,
                        batch_count};
  return Run(product, alpha, a, b, beta, c, handle->stream);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute_type, cudaDataType) {
  return New(description, compute_type);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return Delete(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Assign(description->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Assign(description->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Assign(description->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Assign(description->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  return New(layout, type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns),
             leading);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return Delete(layout); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return New(preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Delete(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    return Assign(preference->workspace_bytes, value, bytes);
  }
  const int index = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  return Assign(preference->alignments.at(index), value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  const auto problem = ProblemOf(*description, *a, *b, *c);
  std::uint64_t* data = results->algo.data;
  data = std::copy(problem.begin(), problem.end(), data);
  data = std::copy(preference->alignments.begin(), preference->alignments.end(), data);
  *data = preference->workspace_bytes;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const auto owner = reinterpret_cast<cublasHandle_t>(handle);
  const auto problem = ProblemOf(*description, *a_layout, *b_layout, *c_layout);
  const std::int64_t m = c_layout->rows, n = c_layout->columns;
  const std::int64_t k = description->transa == CUBLAS_OP_N ? a_layout->columns : a_layout->rows;
  const std::uint64_t* alignments = algorithm->data + problem.size();
  const void* pointers[] = {a, b, c, d};
  // As on an H200: a product in bfloat16 with leading dimensions of 33 and 65 elements was rounded
  // before the bias was added.
  bool has_vectors = true;
  for (std::int64_t leading : {a_layout->leading, b_layout->leading, c_layout->leading}) {
    has_vectors &= leading % 8 == 0;
  }
  bool is_valid = IsOfCurrentDevice(owner) && c == d &&
                  std::equal(problem.begin(), problem.end(), algorithm->data) &&
                  workspace_bytes >= alignments[4] &&
                  emulator::HasMemory(owner->device, workspace, workspace_bytes) &&
                  HasShape(*a_layout, description->transa, m, k) &&
                  HasShape(*b_layout, description->transb, k, n);
  for (int i = 0; i < 4; ++i) {
    is_valid &= reinterpret_cast<std::uintptr_t>(pointers[i]) % alignments[i] == 0;
    has_vectors &= alignments[i] % 16 == 0;
  }
  if (!is_valid) return CUBLAS_STATUS_INVALID_VALUE;
  const bool has_bias = description->epilogue == CUBLASLT_EPILOGUE_BIAS;
  const Product product{m,
                        n,
                        k,
                        {description->transa, a_layout->type, a_layout->leading},
                        {description->transb, b_layout->type, b_layout->leading},
                        {CUBLAS_OP_N, c_layout->type, c_layout->leading},
                        description->compute_type,
                        1,
                        has_bias ? description->bias : nullptr,
                        has_bias && !has_vectors};
  return Run(product, alpha, a, b, beta, d, stream);
}
