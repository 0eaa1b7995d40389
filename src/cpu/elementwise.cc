#include "cpu/elementwise.h"

#include <algorithm>

#include "cpu/elements.h"
#include "cpu/iteration.h"
#include "cpu/row_elements.h"
#include "cpu/stream.h"

namespace infini::ops::cpu {
namespace {

// One row. T has the size of the elements.
template <typename T>
void RunRow(const RowElements<T>& out, const RowElements<T>& input, const RowElements<T>& other,
            std::int64_t size, ElementwiseKernel kernel, const void* parameter, bool is_streamed) {
  const bool streams = is_streamed && out.is_contiguous();
  if (!streams && out.is_contiguous() && input.is_contiguous() && other.is_contiguous()) {
    return kernel(input.At(0), other.At(0), out.At(0), size, parameter);
  }
  T buffers[3][kBlock];
  for (std::int64_t begin = 0; begin < size; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, size - begin);
    const T* const a = input.Read(begin, count, buffers[1]);
    const T* const b = other.Read(begin, count, buffers[2]);
    T* const room = streams ? buffers[0] : out.Room(begin, buffers[0]);
    kernel(a, b, room, count, parameter);
    if (streams) {
      Stream(out.At(begin), room, static_cast<std::size_t>(count) * sizeof(T));
    } else {
      out.Write(begin, count, room);
    }
  }
}

}  // namespace

void Elementwise(const Tensor& input, const Tensor& other, const Tensor& out,
                 ElementwiseKernel kernel, const void* parameter, bool is_memory_bound) {
  const bool is_streamed = is_memory_bound && IsStreamed(out, input, other);
  WithSizeOf(out.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    ForEachTile(MakeGeometry(out, input, other), [&](const Tile& tile) {
      for (std::int64_t row = 0; row < tile.rows; ++row) {
        RunRow<T>({tile, row, 0}, {tile, row, 1}, {tile, row, 2}, tile.count, kernel, parameter,
                  is_streamed);
      }
      if (is_streamed) FinishStreams();
    });
  });
}

}  // namespace infini::ops::cpu
