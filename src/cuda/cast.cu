#include <cstdint>

#include "base/cast.h"
#include "cuda/copy.h"
#include "cuda/elementwise.h"
#include "cuda/types.h"

namespace infini::ops {
namespace {

// A value of any type. One of the two members can represent every integer and float exactly; an
// unsigned integer of 64 bits is in `integer` modulo 2^64.
struct Number {
  enum class Kind { kReal, kInteger, kUnsigned };

  double real;
  std::int64_t integer;
  Kind kind;

  template <typename T>
  static __device__ Number Of(T value) {
    if constexpr (std::is_integral_v<T>) {
      constexpr Kind kind = std::is_same_v<T, std::uint64_t> ? Kind::kUnsigned : Kind::kInteger;
      return {0, static_cast<std::int64_t>(value), kind};
    } else {
      return {static_cast<double>(static_cast<Computed<T>>(value)), 0, Kind::kReal};
    }
  }

  // Truncates as in C++, and gives every other number the lowest value, as on the CPU.
  __device__ std::int64_t Truncated() const {
    return -0x1p63 <= real && real < 0x1p63 ? static_cast<std::int64_t>(real) : INT64_MIN;
  }

  template <typename T>
  __device__ T To() const {
    if constexpr (std::is_same_v<T, bool>) {
      return kind == Kind::kReal ? real != 0 : integer != 0;
    } else if constexpr (std::is_integral_v<T>) {
      if (kind != Kind::kReal) return static_cast<T>(integer);
      const bool is_large = std::is_same_v<T, std::uint64_t> && 0x1p63 <= real && real < 0x1p64;
      return static_cast<T>(is_large ? static_cast<std::uint64_t>(real)
                                     : static_cast<std::uint64_t>(Truncated()));
    } else {
      using C = Computed<T>;
      if (kind == Kind::kReal) return static_cast<T>(static_cast<C>(real));
      return static_cast<T>(kind == Kind::kUnsigned
                                ? static_cast<C>(static_cast<std::uint64_t>(integer))
                                : static_cast<C>(integer));
    }
  }
};

template <typename T>
struct Element {
  using Type = T;
};

// `WithStoredType` for device code, which can only call lambdas marked for the device.
template <typename Visitor>
__device__ void Visit(DataType type, Visitor& visitor) {
  switch (type) {
    case DataType::kFloat16:
      return visitor(Element<cuda::Float16>());
    case DataType::kBFloat16:
      return visitor(Element<cuda::BFloat16>());
    case DataType::kFloat32:
      return visitor(Element<float>());
    case DataType::kFloat64:
      return visitor(Element<double>());
    case DataType::kInt64:
      return visitor(Element<std::int64_t>());
    case DataType::kInt32:
      return visitor(Element<std::int32_t>());
    case DataType::kInt16:
      return visitor(Element<std::int16_t>());
    case DataType::kInt8:
      return visitor(Element<std::int8_t>());
    case DataType::kUInt64:
      return visitor(Element<std::uint64_t>());
    case DataType::kUInt32:
      return visitor(Element<std::uint32_t>());
    case DataType::kUInt16:
      return visitor(Element<std::uint16_t>());
    case DataType::kUInt8:
      return visitor(Element<std::uint8_t>());
    default:
      return visitor(Element<bool>());
  }
}

struct Reader {
  const char* address;
  Number number;

  template <typename T>
  __device__ void operator()(Element<T>) {
    number = Number::Of(*reinterpret_cast<const T*>(address));
  }
};

struct Writer {
  char* address;
  Number number;

  template <typename T>
  __device__ void operator()(Element<T>) {
    *reinterpret_cast<T*>(address) = number.To<T>();
  }
};

constexpr int kUnroll = 4;

// Converts between any two types, and checks the types for each element, as torch's kernel does.
// One kernel for each of the 156 pairs would take 10 times as long to compile.
__global__ void __launch_bounds__(cuda::kBlock)
    CastKernel(const cuda::Walk<2> walk, const DataType out_type, const DataType input_type) {
  using cuda::kBlock;
  const std::uint32_t first = blockIdx.x * (kBlock * kUnroll) + threadIdx.x;
  char* targets[kUnroll];
  Number numbers[kUnroll];
#pragma unroll
  for (int step = 0; step < kUnroll; ++step) {
    if (first + step * kBlock >= walk.count) continue;
    const cuda::Place<2> place = walk.Find(first + step * kBlock);
    targets[step] = walk.data[0] + place.offsets[0];
    Reader reader{walk.data[1] + place.offsets[1], {}};
    Visit(input_type, reader);
    numbers[step] = reader.number;
  }
#pragma unroll
  for (int step = 0; step < kUnroll; ++step) {
    if (first + step * kBlock >= walk.count) continue;
    Writer writer{targets[step], numbers[step]};
    Visit(out_type, writer);
  }
}

void CastAny(const Invocation& invocation, const Tensor& input, const Tensor& out) {
  const cuda::DeviceGuard guard(invocation.device);
  cuda::ForEachWalk(MakeGeometry(out, input), [&](const Geometry<2>& piece) {
    const cuda::Walk<2> walk(piece, 1);
    cuda::Launch(CastKernel, cuda::BlockCount(walk.count, kUnroll), cuda::kBlock, 0,
                 cuda::CurrentStream(invocation), walk, out.data_type(), input.data_type());
  });
}

template <typename Out>
struct RoundFunction {
  template <typename In>
  __device__ Out operator()(In value) const {
    return static_cast<Out>(static_cast<float>(value));
  }
};

// Converts between the usual types of models, several elements at a time. False for other types.
bool CastFloats(const Invocation& invocation, const Tensor& input, const Tensor& out) {
  if (input.data_type() == DataType::kFloat64 || out.data_type() == DataType::kFloat64) {
    return false;
  }
  return cuda::WithFloatType(out.data_type(), [&](auto* out_element) {
    return cuda::WithFloatType(input.data_type(), [&](auto* input_element) {
      using Out = ElementOf<decltype(out_element)>;
      using In = ElementOf<decltype(input_element)>;
      constexpr bool kWide = std::is_same_v<Out, double> || std::is_same_v<In, double>;
      if constexpr (!kWide && !std::is_same_v<Out, In>) {
        cuda::RunElementwise<Out, In>(invocation, MakeGeometry(out, input), RoundFunction<Out>());
      }
      return true;
    });
  });
}

}  // namespace

template <>
struct Operator<Cast, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    if (input.data_type() == out.data_type()) {
      cuda::Copier copier(invocation);
      copier.Add(MakeGeometry(out, input), DataTypeSize(out.data_type()));
      copier.Flush();
    } else if (!CastFloats(invocation, input, out)) {
      CastAny(invocation, input, out);
    }
  }
};

INFINI_OPS_REGISTER(Cast, cuda::kDevice, 0);

}  // namespace infini::ops
