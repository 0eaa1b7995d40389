#ifndef INFINI_OPS_CPU_PRODUCT_PARTS_H_
#define INFINI_OPS_CPU_PRODUCT_PARTS_H_

#include <cstdint>
#include <memory>

#include "core/product.h"

// The parts of a product, for operators that do more between two products than one call of
// `Multiply` can: attention.
namespace infini::ops::cpu {

// The epilogue: out = alpha * sums + beta * out + bias. The data of `bias` can be null.
struct ProductEnd {
  Scalar alpha;
  Scalar beta;
  Matrix bias;
  Matrix out;
};

// The kernels of product_kernels.h for one element type T and instruction set. Sums and converted
// elements have the type C that T is computed in. All strides are in elements.
struct ProductKernels {
  using Convert = void (*)(const void* source, std::int64_t row_stride, std::int64_t stride,
                           std::int64_t rows, std::int64_t count, void* converted,
                           std::int64_t row_size);
  using Pack = void (*)(const ProductKernels& kernels, const void* source, std::int64_t row_stride,
                        std::int64_t k_stride, std::int64_t count, std::int64_t k, void* packed);
  using MultiplyFew = void (*)(std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                               std::int64_t a_stride, const void* b, std::int64_t b_stride,
                               void* sums, std::int64_t row_size);

  // If not, converted elements have the same bits.
  bool converts() const { return element_size != sum_size; }

  std::int64_t element_size;
  std::int64_t out_size;  // of an element of the bias and of the out
  std::int64_t sum_size;
  std::int64_t lanes;
  std::int64_t tile_rows;
  std::int64_t tile_columns;
  std::int64_t small_multiplications;
  Convert convert;
  Pack pack_rows;
  Pack pack_columns;
  void (*multiply_block)(std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                         std::int64_t a_step, const void* b, std::int64_t b_step, void* sums,
                         std::int64_t row_size, bool add);
  void (*finish)(std::int64_t m, std::int64_t n, const void* sums, std::int64_t row_size,
                 const ProductEnd& end);
  // For floats only.
  MultiplyFew multiply_along = nullptr;
  void (*multiply_across)(std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                          std::int64_t a_stride, const void* b, std::int64_t b_stride, void* sums,
                          std::int64_t row_size, bool add) = nullptr;
  // For float32 and float64 only.
  void (*multiply_in_place)(std::int64_t m, std::int64_t columns, std::int64_t k, const void* a,
                            std::int64_t a_row, std::int64_t a_step, const void* b,
                            std::int64_t b_step, void* sums, std::int64_t row_size) = nullptr;
};

// Those of the active instruction set, for any real type.
const ProductKernels& ProductKernelsOf(DataType type);

// Number of multiplications for which an additional thread is worthwhile: some 10 us of work.
inline constexpr std::int64_t kMultiplicationsPerThread = 1 << 18;

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The number of rows for the few-row kernels: 1, or a multiple of four, padded with zeros.
constexpr std::int64_t FilledUp(std::int64_t m) { return m == 1 ? 1 : CeilDiv(m, 4) * 4; }

// Uninitialized memory with the alignment of vectors. Aligned by hand: an aligned `new` takes as
// long as a small product.
class Buffer {
 public:
  // `bytes` can be 0; the address is then null.
  explicit Buffer(std::int64_t bytes)
      : data_(bytes == 0 ? nullptr : new char[static_cast<std::size_t>(bytes + kAlignment)]) {}
  char* get() const {
    if (!data_) return nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(data_.get());
    return data_.get() + (kAlignment - address % kAlignment);
  }

 private:
  static constexpr std::int64_t kAlignment = 64;
  std::unique_ptr<char[]> data_;
};

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_PRODUCT_PARTS_H_
