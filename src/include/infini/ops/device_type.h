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

// What a platform is called here and in torch, and the Python module that brings torch the device
// type; an empty one where torch has it. Three vendors ship torch forks that present their devices
// as `cuda`, which is why a build enables at most one accelerator.
struct DeviceTypeInfo {
  DeviceType type;
  std::string_view name;
  std::string_view torch_device;
  std::string_view torch_plugin;
};

// By the value of `DeviceType`. CMake reads the lines too.
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
