#ifndef INFINI_OPS_DEVICE_H_
#define INFINI_OPS_DEVICE_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "infini/ops/export.h"

namespace infini::ops {

// Where a tensor lives: a platform and the ordinal of one of its devices.
class Device {
 public:
  enum class Type : std::uint8_t {
    kCpu,
    kNvidia,
    kIluvatar,
    kMetax,
    kCambricon,
    kMoore,
    kAscend,
  };

  constexpr Device() = default;
  constexpr Device(Type type, int index = 0)
      : type_(type), index_(static_cast<std::int16_t>(index)) {}

  constexpr Type type() const { return type_; }
  constexpr int index() const { return index_; }

  friend constexpr bool operator==(Device a, Device b) {
    return a.type_ == b.type_ && a.index_ == b.index_;
  }
  friend constexpr bool operator!=(Device a, Device b) { return !(a == b); }

 private:
  Type type_ = Type::kCpu;
  std::int16_t index_ = 0;
};

// What a platform is called here and in torch. Three vendors ship torch forks that present
// their devices as `cuda`, which is why a build enables at most one accelerator.
struct DeviceTypeInfo {
  Device::Type type;
  std::string_view name;
  std::string_view torch_name;
};

inline constexpr std::array<DeviceTypeInfo, 7> kDeviceTypes = {{
    {Device::Type::kCpu, "cpu", "cpu"},
    {Device::Type::kNvidia, "nvidia", "cuda"},
    {Device::Type::kIluvatar, "iluvatar", "cuda"},
    {Device::Type::kMetax, "metax", "cuda"},
    {Device::Type::kCambricon, "cambricon", "mlu"},
    {Device::Type::kMoore, "moore", "musa"},
    {Device::Type::kAscend, "ascend", "npu"},
}};

constexpr const DeviceTypeInfo& Info(Device::Type type) {
  return kDeviceTypes[static_cast<std::size_t>(type)];
}

// True for the platforms that this library was built for.
INFINI_OPS_API bool IsEnabled(Device::Type type);

// The enabled platform called `name`, by its own or its torch name; throws
// `std::invalid_argument` with the enabled ones otherwise.
INFINI_OPS_API Device::Type ParseDeviceType(std::string_view name);

}  // namespace infini::ops

#endif  // INFINI_OPS_DEVICE_H_
