#include "cpu/convert.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/geometry.h"
#include "cpu/elements.h"
#include "cpu/iteration.h"
#include "cpu/kernels.h"
#include "cpu/row_elements.h"

#define INFINI_OPS_KERNELS "cpu/convert_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

// The memory of a bool. NumPy views can contain any byte in it.
enum class Bool : std::uint8_t {};

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

// Converts through 32 bits, as vectors of every processor can, and repeats a block that has a
// larger number, for which the result of that is unspecified. As integers, magnitudes have the
// order of the numbers: adding a constant sets the sign bit of those that are too large.
template <typename From, typename To>
void TruncateElements(const void* from, void* to, std::int64_t count) {
  using Bits = std::conditional_t<sizeof(From) == 8, std::uint64_t, std::uint32_t>;
  constexpr From limit = 0x1p31f;
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  Bits too_large;
  std::memcpy(&too_large, &limit, sizeof(too_large));
  const From* source = static_cast<const From*>(from);
  To* target = static_cast<To*>(to);
  for (std::int64_t size; count > 0; count -= size, source += size, target += size) {
    size = std::min(count, kBlock);
    Bits found = 0;
    INFINI_OPS_INDEPENDENT
    for (std::int64_t i = 0; i < size; ++i) {
      Bits bits;
      std::memcpy(&bits, source + i, sizeof(bits));
      found |= (bits & ~sign) + (sign - too_large);
      target[i] = static_cast<To>(static_cast<std::int32_t>(source[i]));
    }
    if (found & sign) ConvertElements<From, To>(source, target, size);
  }
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

// The loop for two types. Loops differ by the sign of an integer only where it matters: an integer
// that becomes larger or a float, and a float that becomes an integer of 64 bits.
template <typename From, typename To>
constexpr Step StepFor() {
  constexpr bool kDropsBits =
      std::is_same_v<To, Bool> || (std::is_integral_v<To> && sizeof(To) < sizeof(From));
  using Source = std::conditional_t<kDropsBits, Signed<From>, From>;
  using Target =
      std::conditional_t<std::is_floating_point_v<From> && sizeof(To) == 8, To, Signed<To>>;
  if constexpr (std::is_same_v<Signed<Source>, Target>) {
    return nullptr;  // copied instead
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 8) {
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
  return from == to ||
         (IsIntegerType(from) && IsIntegerType(to) && DataTypeSize(from) == DataTypeSize(to));
}

bool IsHalf(DataType type) { return type == DataType::kFloat16 || type == DataType::kBFloat16; }

DataType Widened(DataType type) { return IsHalf(type) ? DataType::kFloat32 : type; }

// A conversion between two types in up to three steps.
class Conversion {
 public:
  Conversion(DataType from, DataType to) {
    if (from == DataType::kFloat16) Add(INFINI_OPS_KERNEL(Widen<Float16>));
    if (from == DataType::kBFloat16) Add(INFINI_OPS_KERNEL(Widen<BFloat16>));
    if (Widened(from) != Widened(to)) Add(StepBetween(Widened(from), Widened(to)));
    if (to == DataType::kFloat16) Add(INFINI_OPS_KERNEL(Narrow<Float16>));
    if (to == DataType::kBFloat16) Add(INFINI_OPS_KERNEL(Narrow<BFloat16>));
  }

  bool has_one_step() const { return size_ == 1; }

  // At most one block, unless there is only one step.
  void Apply(const void* from, void* to, std::int64_t count) const {
    double buffers[2][kBlock];  // of elements of any type
    for (std::size_t i = 0; i < size_; ++i) {
      void* const target = i + 1 == size_ ? to : buffers[i];
      steps_[i](from, target, count);
      from = target;
    }
  }

 private:
  void Add(Step step) { steps_[size_++] = step; }

  Step steps_[3];
  std::size_t size_ = 0;
};

// From and To are types with the sizes of the elements.
template <typename From, typename To>
void ConvertRow(const RowElements<From>& from, const RowElements<To>& to, std::int64_t size,
                const Conversion& conversion) {
  if (from.is_contiguous() && to.is_contiguous() && conversion.has_one_step()) {
    return conversion.Apply(from.At(0), to.At(0), size);
  }
  From gathered[kBlock];
  To converted[kBlock];
  for (std::int64_t begin = 0; begin < size; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, size - begin);
    To* const room = to.Room(begin, converted);
    conversion.Apply(from.Read(begin, count, gathered), room, count);
    to.Write(begin, count, room);
  }
}

template <typename T>
void CopyRow(const RowElements<T>& from, const RowElements<T>& to, std::int64_t size) {
  if (from.is_contiguous()) return to.Write(0, size, from.At(0));
  for (std::int64_t i = 0; i < size; ++i) *to.At(i) = *from.At(i);
}

template <typename From, typename To>
void ConvertTile(const Tile& tile, const Conversion& conversion) {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    ConvertRow<From, To>({tile, row, 1}, {tile, row, 0}, tile.count, conversion);
  }
}

template <typename T>
void CopyTile(const Tile& tile) {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    CopyRow<T>({tile, row, 1}, {tile, row, 0}, tile.count);
  }
}

}  // namespace

void Convert(const Tensor& from, const Tensor& to) {
  WithSizeOf(to.data_type(), [&](auto* target) {
    using To = ElementOf<decltype(target)>;
    if (IsCopy(from.data_type(), to.data_type())) {
      return ForEachTile(MakeGeometry(to, from), CopyTile<To>);
    }
    const Conversion conversion(from.data_type(), to.data_type());
    WithSizeOf(from.data_type(), [&](auto* source) {
      ForEachTile(MakeGeometry(to, from), [&](const Tile& tile) {
        ConvertTile<ElementOf<decltype(source)>, To>(tile, conversion);
      });
    });
  });
}

}  // namespace infini::ops::cpu
