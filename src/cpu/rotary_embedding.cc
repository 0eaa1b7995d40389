#include "base/rotary_embedding.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/rotary.h"
#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/row_elements.h"

#define INFINI_OPS_KERNELS "cpu/rotary_embedding_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {
namespace cpu {
namespace {

// Kernels of rotary_embedding_kernels.h.
using WidenFunction = void (*)(const void* from, std::int64_t count, float* to);
using RotateFunction = void (*)(void* first, std::int64_t count, std::int64_t stride,
                                std::int64_t pairs, const float* factors);

WidenFunction WidenOf(DataType type) {
  return WithSmallFloatType(type, [](auto* element) -> WidenFunction {
    return INFINI_OPS_KERNEL(WidenFactors<ElementOf<decltype(element)>>);
  });
}

RotateFunction RotateOf(DataType type, bool is_neox) {
  return WithSmallFloatType(type, [&](auto* element) -> RotateFunction {
    using T = ElementOf<decltype(element)>;
    if (is_neox) return INFINI_OPS_KERNEL(RotateHeads<T, true>);
    return INFINI_OPS_KERNEL(RotateHeads<T, false>);
  });
}

class Rotation {
 public:
  Rotation(const Rotary& rotary, const Tensor& positions, DataType type, const Tensor& cache,
           bool is_neox, bool is_inverse)
      : rotary_(rotary),
        is_batched_(positions.dimensions() == 2),
        position_type_(positions.data_type()),
        type_(type),
        cache_(cache),
        is_neox_(is_neox),
        is_inverse_(is_inverse),
        widen_(WidenOf(cache.data_type())),
        rotate_(RotateOf(type, is_neox)) {}

  // Throws `std::invalid_argument` if the cache has no row for a position.
  void CheckPositions() const {
    const std::int64_t size = cache_.shape()[0];
    for (std::int64_t token = 0; token < count(); ++token) {
      const std::int64_t position = PositionAt(token);
      if (0 <= position && position < size) continue;
      const std::string place = (is_batched_ ? std::to_string(token / rotary_.tokens) + ", " : "") +
                                std::to_string(token % rotary_.tokens);
      throw std::invalid_argument("rotary_embedding: positions[" + place + "]: got " +
                                  std::to_string(position) + ", expected 0 to " +
                                  std::to_string(size - 1) + ": cos_sin_cache has " +
                                  std::to_string(size) + " rows; compute it for all positions");
    }
  }

  void Run() const {
    const std::int64_t elements = 2 * rotary_.pairs * (rotary_.query.count + rotary_.key.count);
    if (elements == 0) return;
    ParallelFor(count(), kElementsPerThread / elements, [&](std::int64_t begin, std::int64_t end) {
      // The factors, as they are and as the kernel reads them, and elements that are not
      // contiguous.
      const std::unique_ptr<float[]> room(new float[8 * rotary_.pairs]);
      for (std::int64_t token = begin; token < end; ++token) {
        const float* const factors = FactorsOf(PositionAt(token), room.get());
        for (const Heads* heads : {&rotary_.query, &rotary_.key}) {
          RotateToken(*heads, token, factors, room.get() + 6 * rotary_.pairs);
        }
      }
    });
  }

 private:
  std::int64_t count() const { return rotary_.batches * rotary_.tokens; }

  char* At(const Heads& heads, DataType type, std::int64_t token) const {
    const std::int64_t offset =
        token / rotary_.tokens * heads.batch_stride + token % rotary_.tokens * heads.token_stride;
    return heads.data + offset * static_cast<std::int64_t>(DataTypeSize(type));
  }

  std::int64_t PositionAt(std::int64_t token) const {
    const char* const position = At(rotary_.positions, position_type_, token);
    return position_type_ == DataType::kInt32 ? *reinterpret_cast<const std::int32_t*>(position)
                                              : *reinterpret_cast<const std::int64_t*>(position);
  }

  // Writes the factors into `room`, in the order of the kernel, and returns where they are.
  const float* FactorsOf(std::int64_t position, float* room) const {
    const std::int64_t pairs = rotary_.pairs;
    const auto size = static_cast<std::int64_t>(DataTypeSize(cache_.data_type()));
    char* const row = cache_.data<char>() + position * cache_.strides()[0] * size;
    float* const gathered = room + 2 * pairs;
    WithSizeOf(cache_.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      const RowElements<T> elements(row, cache_.strides()[1] * size);
      widen_(elements.Read(0, 2 * pairs, reinterpret_cast<T*>(gathered)), 2 * pairs, room);
    });
    float* const sines = room + pairs;
    if (is_inverse_) {
      for (std::int64_t i = 0; i < pairs; ++i) sines[i] = -sines[i];
    }
    if (is_neox_) return room;
    float* const own = room + 2 * pairs;
    float* const others = own + 2 * pairs;
    for (std::int64_t i = 0; i < pairs; ++i) {
      own[2 * i] = own[2 * i + 1] = room[i];
      others[2 * i] = -sines[i];
      others[2 * i + 1] = sines[i];
    }
    return own;
  }

  void RotateToken(const Heads& heads, std::int64_t token, const float* factors,
                   float* room) const {
    char* const first = At(heads, type_, token);
    if (heads.element_stride == 1) {
      return rotate_(first, heads.count, heads.stride, rotary_.pairs, factors);
    }
    WithSizeOf(type_, [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      constexpr auto size = static_cast<std::int64_t>(sizeof(T));
      for (std::int64_t i = 0; i < heads.count; ++i) {
        const RowElements<T> elements(first + i * heads.stride * size, heads.element_stride * size);
        T* const gathered = reinterpret_cast<T*>(room);
        static_cast<void>(elements.Read(0, 2 * rotary_.pairs, gathered));
        rotate_(gathered, 1, 0, rotary_.pairs, factors);
        elements.Write(0, 2 * rotary_.pairs, gathered);
      }
    });
  }

  const Rotary& rotary_;
  bool is_batched_;
  DataType position_type_;
  DataType type_;
  const Tensor& cache_;
  bool is_neox_;
  bool is_inverse_;
  WidenFunction widen_;
  RotateFunction rotate_;
};

}  // namespace
}  // namespace cpu

template <>
struct Operator<RotaryEmbedding, Device::Type::kCpu, 0> {
  static void Run(const Invocation& invocation, const Tensor& positions, const Tensor& query,
                  const std::optional<Tensor>&, std::int64_t, const Tensor& cos_sin_cache,
                  bool is_neox, std::int64_t, bool inverse) {
    Rotary rotary;
    RotaryOf(invocation, &rotary);
    const cpu::Rotation rotation(rotary, positions, query.data_type(), cos_sin_cache, is_neox,
                                 inverse);
    rotation.CheckPositions();
    rotation.Run();
  }
};

INFINI_OPS_REGISTER(RotaryEmbedding, Device::Type::kCpu, 0);

}  // namespace infini::ops
