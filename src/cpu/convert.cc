#include "cpu/convert.h"

#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "core/geometry.h"
#include "cpu/copy.h"
#include "cpu/elements.h"
#include "cpu/iteration.h"
#include "cpu/kernels.h"
#include "infini/ops/requirements.h"

#define INFINI_OPS_KERNELS "cpu/convert_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

// The memory of a bool. NumPy views can contain any byte in it.
enum class Bool : std::uint8_t {};

// Elements that are converted at a time if that takes several steps, or copies of the elements.
// With a quarter of it, float32 becomes int32 at 0.9 of the speed.
constexpr std::int64_t kChunk = 2048;

// Converts contiguous elements of one type to another.
using Step = void (*)(const void* from, void* to, std::int64_t count);

// Truncates as in C++. What it does not define is the lowest value here, as x86's instruction
// gives.
template <typename From>
std::int64_t Truncate(From value) {
#ifdef __x86_64__
  if constexpr (std::is_same_v<From, float>) return _mm_cvttss_si64(_mm_set_ss(value));
  return _mm_cvttsd_si64(_mm_set_sd(value));
#else
  constexpr From limit = 0x1p63f;
  return -limit <= value && value < limit ? static_cast<std::int64_t>(value)
                                          : std::numeric_limits<std::int64_t>::min();
#endif
}

template <typename To, typename From>
To ConvertElement(From value) {
  if constexpr (std::is_same_v<From, Bool>) {
    return ConvertElement<To>(static_cast<std::int8_t>(static_cast<std::uint8_t>(value) != 0));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return static_cast<Bool>(value != 0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if constexpr (std::is_same_v<To, std::uint64_t>) {
      if (0x1p63f <= value && value < 0x1p64f) return static_cast<To>(value);
    }
    return static_cast<To>(Truncate(value));
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void ConvertElements(const void* from, void* to, std::int64_t count) {
  const From* const source = static_cast<const From*>(from);
  To* const target = static_cast<To*>(to);
  INFINI_OPS_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) target[i] = ConvertElement<To>(source[i]);
}

// Floats to integers of 64 bits, one by one. Some runs of a loop of four instructions took twice as
// long.
template <typename From, typename To>
void TruncateElements(const void* from, void* to, std::int64_t count) {
  const From* const source = static_cast<const From*>(from);
  To* const target = static_cast<To*>(to);
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < count; ++i) target[i] = ConvertElement<To>(source[i]);
}

template <typename T>
using Signed = typename std::conditional_t<std::is_integral_v<T>, std::make_signed<T>,
                                           std::common_type<T>>::type;

// Calls `function` with a null pointer to the type; for 16-bit floats, which are converted through
// float, with one to float.
template <typename Function>
auto WithWideType(DataType type, const Function& function) {
  switch (type) {
    case DataType::kBool:
      return function(static_cast<Bool*>(nullptr));
    case DataType::kUInt64:
      return function(static_cast<std::uint64_t*>(nullptr));
    case DataType::kUInt32:
      return function(static_cast<std::uint32_t*>(nullptr));
    case DataType::kUInt16:
      return function(static_cast<std::uint16_t*>(nullptr));
    case DataType::kUInt8:
      return function(static_cast<std::uint8_t*>(nullptr));
    default:
      return ops::WithRealType<float, float>(type, function);
  }
}

// The loop for two types, nullptr if there is none: the bits are copied, or a Truncation is needed.
// Loops differ by the sign of an integer only where it matters: an integer that becomes larger or a
// float, and a float that becomes an integer of 64 bits.
template <typename From, typename To>
Step StepFor() {
  constexpr bool kDropsBits =
      std::is_same_v<To, Bool> || (std::is_integral_v<To> && sizeof(To) < sizeof(From));
  using Source = std::conditional_t<kDropsBits, Signed<From>, From>;
  using Target =
      std::conditional_t<std::is_floating_point_v<From> && sizeof(To) == 8, To, Signed<To>>;
  constexpr bool kTruncates =
      std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 8;
  if constexpr (kTruncates || std::is_same_v<Signed<Source>, Target>) {
    return nullptr;
  } else if constexpr (std::is_same_v<Source, std::int32_t> && std::is_integral_v<Target>) {
    return INFINI_OPS_KERNEL(ConvertInt32<Target>);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return &TruncateElements<Source, Target>;
  } else {
    return &ConvertElements<Source, Target>;
  }
}

Step StepBetween(DataType from, DataType to) {
  return WithWideType(from, [&](auto* source) {
    return WithWideType(to, [&](auto* target) -> Step {
      return StepFor<ElementOf<decltype(source)>, ElementOf<decltype(target)>>();
    });
  });
}

// True if the bits do not change.
bool IsCopy(DataType from, DataType to) {
  return from == to || (kIntegerTypes.Has(from) && kIntegerTypes.Has(to) &&
                        DataTypeSize(from) == DataTypeSize(to));
}

bool IsHalf(DataType type) { return type == DataType::kFloat16 || type == DataType::kBFloat16; }

DataType Widened(DataType type) { return IsHalf(type) ? DataType::kFloat32 : type; }

void CopyTile(const Tile& tile, std::int64_t size) {
  const bool is_contiguous = tile.strides[0] == size && tile.strides[1] == size;
  const Copy copy = CopyOf(size);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    char* const to = tile.data[0] + row * tile.row_strides[0];
    const char* const from = tile.data[1] + row * tile.row_strides[1];
    if (is_contiguous) {
      std::memcpy(to, from, static_cast<std::size_t>(tile.count * size));
    } else {
      copy(from, tile.strides[1], to, tile.strides[0], tile.count);
    }
  }
}

// Floats to integers, at most a chunk at a time. Vectors of every processor can truncate to 32
// bits; a chunk with a number that is too large for that is truncated again, one by one to 64 bits.
class Truncation {
 public:
  // So few are faster one by one.
  static constexpr std::int64_t kFew = 16;

  // `from` is float32 or float64.
  Truncation(DataType from, DataType to)
      : small_(from == DataType::kFloat32 ? INFINI_OPS_KERNEL(TruncateSmall<float>)
                                          : INFINI_OPS_KERNEL(TruncateSmall<double>)),
        after_small_(StepBetween(DataType::kInt32, to)) {
    const bool is_direct = to == DataType::kUInt64;  // int64 can't hold all of it
    large_ = StepBetween(from, is_direct ? to : DataType::kInt64);
    after_large_ = is_direct ? nullptr : StepBetween(DataType::kInt64, to);
  }

  void Apply(const void* from, void* to, std::int64_t count) const {
    std::int64_t integers[kChunk];
    Step after = after_small_;
    if (count <= kFew || !small_(from, after ? integers : to, count)) {
      after = after_large_;
      large_(from, after ? integers : to, count);
    }
    if (after) after(integers, to, count);
  }

 private:
  bool (*small_)(const void* from, void* to, std::int64_t count);
  Step after_small_;
  Step large_;
  Step after_large_;
};

// A conversion between two types in up to three steps, or in a truncation after at most one step.
class Conversion {
 public:
  Conversion(DataType from, DataType to)
      : from_size_(static_cast<std::int64_t>(DataTypeSize(from))),
        to_size_(static_cast<std::int64_t>(DataTypeSize(to))) {
    if (from == DataType::kFloat16) Add(INFINI_OPS_KERNEL(Widen<Float16>));
    if (from == DataType::kBFloat16) Add(INFINI_OPS_KERNEL(Widen<BFloat16>));
    from = Widened(from);
    if (kFloatTypes.Has(from) && kIntegerTypes.Has(to)) {
      truncation_.emplace(from, to);
    } else if (from != Widened(to)) {
      Add(StepBetween(from, Widened(to)));
    }
    if (to == DataType::kFloat16) Add(INFINI_OPS_KERNEL(Narrow<Float16>));
    if (to == DataType::kBFloat16) Add(INFINI_OPS_KERNEL(Narrow<BFloat16>));
  }

  void ConvertTile(const Tile& tile) const {
    const bool is_contiguous = tile.strides[0] == to_size_ && tile.strides[1] == from_size_;
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      char* const to = tile.data[0] + row * tile.row_strides[0];
      const char* const from = tile.data[1] + row * tile.row_strides[1];
      if (is_contiguous && size_ == 1 && !truncation_) {
        steps_[0](from, to, tile.count);
      } else {
        ConvertRow(from, tile.strides[1], to, tile.strides[0], tile.count);
      }
    }
  }

 private:
  void Add(Step step) { steps_[size_++] = step; }

  void ConvertRow(const char* from, std::int64_t from_step, char* to, std::int64_t to_step,
                  std::int64_t count) const {
    // Of elements of any type, as all buffers here.
    alignas(double) char gathered[kChunk * sizeof(double)];
    alignas(double) char converted[kChunk * sizeof(double)];
    const bool is_read_in_place = from_step == from_size_;
    const bool is_written_in_place = to_step == to_size_;
    for (std::int64_t begin = 0; begin < count; begin += kChunk) {
      const std::int64_t size = std::min(kChunk, count - begin);
      const char* source = from + begin * from_step;
      if (!is_read_in_place) {
        // All chunks of a repeated element are the same.
        if (begin == 0 || from_step != 0) {
          CopyOf(from_size_)(source, from_step, gathered, from_size_, size);
        }
        source = gathered;
      }
      char* const target = to + begin * to_step;
      ConvertChunk(source, is_written_in_place ? target : converted, size);
      if (!is_written_in_place) CopyOf(to_size_)(converted, to_size_, target, to_step, size);
    }
  }

  void ConvertChunk(const void* from, void* to, std::int64_t count) const {
    double buffers[2][kChunk];
    for (std::size_t i = 0; i < size_; ++i) {
      void* const target = i + 1 == size_ && !truncation_ ? to : buffers[i];
      steps_[i](from, target, count);
      from = target;
    }
    if (truncation_) truncation_->Apply(from, to, count);
  }

  const std::int64_t from_size_;
  const std::int64_t to_size_;
  Step steps_[3];
  std::size_t size_ = 0;
  std::optional<Truncation> truncation_;  // after the steps
};

}  // namespace

void Convert(const Tensor& from, const Tensor& to) {
  if (IsCopy(from.data_type(), to.data_type())) {
    const auto size = static_cast<std::int64_t>(DataTypeSize(to.data_type()));
    return ForEachTile(MakeGeometry(to, from), [=](const Tile& tile) { CopyTile(tile, size); });
  }
  const Conversion conversion(from.data_type(), to.data_type());
  ForEachTile(MakeGeometry(to, from), [&](const Tile& tile) { conversion.ConvertTile(tile); });
}

}  // namespace infini::ops::cpu
