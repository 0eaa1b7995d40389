#ifndef INFINI_OPS_CPU_HALF_H_
#define INFINI_OPS_CPU_HALF_H_

#include <cstdint>
#include <cstring>

// 16-bit and 8-bit floating point on bit patterns, because not every vendor's compiler has the
// types. Those for aarch64 have `__fp16`, and all its processors can convert it.
namespace infini::ops::cpu {

inline float BitsToFloat(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline std::uint32_t FloatToBits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The upper half of a float32.
class BFloat16 {
 public:
  BFloat16() = default;
  // Rounds to nearest, ties to even; NaN stays NaN.
  explicit BFloat16(double value) : BFloat16(static_cast<float>(value)) {}
  explicit BFloat16(float value) {
    const std::uint32_t bits = FloatToBits(value);
    bits_ = value != value ? 0x7FC0
                           : static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
  explicit operator float() const { return BitsToFloat(static_cast<std::uint32_t>(bits_) << 16); }

 private:
  std::uint16_t bits_;
};

// IEEE 754 binary16.
class Float16 {
 public:
  Float16() = default;
  explicit Float16(double value) : Float16(static_cast<float>(value)) {}
  explicit Float16(float value) : bits_(Round(value)) {}
#ifdef __aarch64__
  explicit operator float() const {
    __fp16 half;
    std::memcpy(&half, &bits_, sizeof(half));
    return half;
  }
#else
  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits_ & 0x8000) << 16;
    const std::uint32_t magnitude = bits_ & 0x7FFF;
    if (magnitude < 0x0400) {  // zero and subnormal: a multiple of 2^-24
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      return BitsToFloat(sign | FloatToBits(value));
    }
    const std::uint32_t rebias = magnitude < 0x7C00 ? (127 - 15) << 23 : (255 - 31) << 23;
    return BitsToFloat(sign | ((magnitude << 13) + rebias));
  }
#endif

 private:
  static std::uint16_t Round(float value) {
#ifdef __aarch64__
    const __fp16 half = static_cast<__fp16>(value);
    std::uint16_t bits;
    std::memcpy(&bits, &half, sizeof(bits));
    return bits;
#else
    const std::uint32_t bits = FloatToBits(value);
    const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
    const std::uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00;   // NaN
    if (magnitude >= 0x477FF000) return sign | 0x7C00;  // rounds to infinity
    if (magnitude < 0x38800000) {  // subnormal: let float addition round at 2^-24
      const float shifted = BitsToFloat(magnitude) + 0.5f;
      return sign | static_cast<std::uint16_t>(FloatToBits(shifted) - FloatToBits(0.5f));
    }
    const std::uint32_t rounded = magnitude + 0x0FFF + ((magnitude >> 13) & 1);
    return sign | static_cast<std::uint16_t>((rounded - ((127 - 15) << 23)) >> 13);
#endif
  }

  std::uint16_t bits_;
};

// float8_e4m3fn: no infinity, and one NaN of each sign. Vectors convert to it, in vector.h.
class Float8 {
 public:
  explicit operator float() const {
    const std::uint32_t magnitude = static_cast<std::uint32_t>(bits_ & 0x7F) << 20;
    std::uint32_t bits = magnitude + ((127u - 7u) << 23);
    // A subnormal is a multiple of 2^-9. Torch can have subnormal float32 read as 0.
    if (magnitude < 0x00800000) bits = FloatToBits(BitsToFloat(bits + 0x00800000) - 0x1p-6f);
    if (magnitude == 0x07F00000) bits = 0x7FC00000;
    return BitsToFloat(bits | static_cast<std::uint32_t>(bits_ & 0x80) << 24);
  }

 private:
  std::uint8_t bits_;
};

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_HALF_H_
