#ifndef INFINI_OPS_DEVICE_H_
#define INFINI_OPS_DEVICE_H_

#include <cstdint>
#include <string_view>

#include "infini/ops/device_type.h"
#include "infini/ops/export.h"

namespace infini::ops {

// The location of a tensor: a platform and the ordinal of one of its devices.
class Device {
 public:
  using Type = DeviceType;

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
