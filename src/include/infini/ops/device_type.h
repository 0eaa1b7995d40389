// Generated from codegen/devices.py by `python -m codegen headers`. Do not edit.
#ifndef INFINI_OPS_DEVICE_TYPE_H_
#define INFINI_OPS_DEVICE_TYPE_H_

#include <cstdint>
#include <string_view>

namespace infini::ops {

enum class DeviceType : std::uint8_t {
  kCpu,
  kNvidia,
  kIluvatar,
  kMetax,
  kCambricon,
  kMoore,
  kAscend,
};

// The names of a platform in this library and in torch, and the Python module that registers the
// device type in torch; empty if torch has it. The torch forks of three vendors present their
// devices as `cuda`. A build therefore enables at most one accelerator.
struct DeviceTypeInfo {
  DeviceType type;
  std::string_view name;
  std::string_view torch_device;
  std::string_view torch_plugin;
};

// Indexed by the value of `DeviceType`. CMake parses these lines too.
inline constexpr DeviceTypeInfo kDeviceTypes[] = {
    {DeviceType::kCpu, "cpu", "cpu", ""},
    {DeviceType::kNvidia, "nvidia", "cuda", ""},
    {DeviceType::kIluvatar, "iluvatar", "cuda", ""},
    {DeviceType::kMetax, "metax", "cuda", ""},
    {DeviceType::kCambricon, "cambricon", "mlu", "torch_mlu"},
    {DeviceType::kMoore, "moore", "musa", "torch_musa"},
    {DeviceType::kAscend, "ascend", "npu", "torch_npu"},
};

}  // namespace infini::ops

#endif  // INFINI_OPS_DEVICE_TYPE_H_
