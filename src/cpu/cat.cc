#include "base/cat.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/concatenation.h"
#include "cpu/convert.h"
#include "cpu/parallel.h"
#include "infini/ops/tensor.h"

namespace infini::ops {
namespace {

std::int64_t CountBefore(std::size_t dimension, const Tensor& tensor) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < dimension; ++i) count *= tensor.shape()[i];
  return count;
}

// For some KB, glibc's memcpy uses `rep movsb`. If the rows are not in the caches, that takes two
// and a half times as long on AMD's Zen 4 as pieces that the compiler copies with vectors.
void CopyBytes(const char* from, char* to, std::int64_t size) {
  constexpr std::int64_t many = 1024;
  constexpr std::int64_t piece = 64;
  if (size < many) {
    std::memcpy(to, from, static_cast<std::size_t>(size));
    return;
  }
  for (std::int64_t i = 0; i + piece <= size; i += piece) std::memcpy(to + i, from + i, piece);
  std::memcpy(to + size - piece, from + size - piece, piece);
}

// Contiguous tensors as rows; a row is the part at one index of the dimensions before `dimension`.
class ContiguousRows {
 public:
  ContiguousRows(Span<Tensor> tensors, std::size_t dimension, const Tensor& out)
      : out_(out.data<char>()), rows_(CountBefore(dimension, out)) {
    const auto element_size = static_cast<std::int64_t>(DataTypeSize(out.data_type()));
    for (const Tensor& tensor : tensors) {
      const std::int64_t size = tensor.element_count() / rows_ * element_size;
      runs_.push_back({tensor.data<char>(), size});
      row_size_ += size;
    }
  }

  void Copy() const {
    constexpr std::int64_t grain = 1 << 16;
    cpu::ParallelFor(rows_, grain / row_size_ + 1, [&](std::int64_t begin, std::int64_t end) {
      char* to = out_ + begin * row_size_;
      for (std::int64_t row = begin; row < end; ++row) {
        for (const Run& run : runs_) {
          CopyBytes(run.data + row * run.size, to, run.size);
          to += run.size;
        }
      }
    });
  }

 private:
  struct Run {
    const char* data;
    std::int64_t size;  // in bytes, of a row
  };

  char* out_;
  std::int64_t rows_;
  std::vector<Run> runs_;
  std::int64_t row_size_ = 0;
};

// True if `out` should be written from beginning to end. Writing one tensor after the other would
// pass all of `out` through the caches once per tensor (0.7 to 0.9 of the speed).
bool HasManyContiguousRows(Span<Tensor> tensors, std::size_t dimension, const Tensor& out) {
  constexpr std::int64_t many = 64;
  return CountBefore(dimension, out) >= many && out.element_count() > 0 && out.is_contiguous() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const Tensor& tensor) { return tensor.is_contiguous(); });
}

}  // namespace

template <>
struct Operator<Cat, Device::Type::kCpu, 0> {
  static void Run(Span<Tensor> tensors, std::int64_t dim, const Tensor& out) {
    const std::size_t dimension = DimensionOf(dim, out);
    if (HasManyContiguousRows(tensors, dimension, out)) {
      ContiguousRows(tensors, dimension, out).Copy();
    } else {
      ForEachPart(tensors, dimension, out, cpu::Convert);
    }
  }
};

INFINI_OPS_REGISTER(Cat, Device::Type::kCpu, 0);

}  // namespace infini::ops
