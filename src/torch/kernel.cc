#include "torch/kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/ops/range_ops.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "torch/copies.h"
#include "torch/foreign.h"
#include "torch/quirks.h"
#include "torch/tensors.h"
#include "torch/wrapped_arguments.h"

namespace infini::ops::torch_backend {
namespace {

static_assert(static_cast<int>(DataType::kBFloat16) == static_cast<int>(at::kBFloat16));
static_assert(static_cast<int>(DataType::kBool) == static_cast<int>(at::kBool));
static_assert(static_cast<int>(DataType::kComplex128) == static_cast<int>(at::kComplexDouble));
static_assert(static_cast<int>(MemoryFormat::kChannelsLast3d) ==
              static_cast<int>(at::MemoryFormat::ChannelsLast3d));

const at::Tensor& AsTorch(const void* tensor) { return *static_cast<const at::Tensor*>(tensor); }

// The accelerator of this build and torch's type for it, taken from the first tensor on it (the CPU
// until then). A plug-in can define its device's name in torch after this library was loaded, and
// calls must not compare strings. Aligned to its size: otherwise Clang needs libatomic.
struct alignas(2) Accelerator {
  Device::Type type = Device::Type::kCpu;
  c10::DeviceType torch_type = c10::DeviceType::CPU;
};
std::atomic<Accelerator> seen_accelerator{Accelerator{}};

Accelerator Remember(Accelerator accelerator) {
  seen_accelerator.store(accelerator, std::memory_order_relaxed);
  return accelerator;
}

Accelerator FindAccelerator(Device::Type type) {
  const DeviceTypeInfo& info = Info(type);
  if (!IsEnabled(type)) {
    throw std::invalid_argument("a tensor is on " + std::string(info.name) +
                                ", which this build of the library does not support");
  }
  try {
    return {type, c10::Device(std::string(info.torch_device)).type()};
  } catch (const c10::Error&) {
    throw std::invalid_argument("torch does not know the device '" +
                                std::string(info.torch_device) + "' (" + std::string(info.name) +
                                ") until its plug-in is loaded: run `import " +
                                std::string(info.torch_plugin) + "` first");
  }
}

Device::Type TypeOf(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU) return Device::Type::kCpu;
  Accelerator accelerator = seen_accelerator.load(std::memory_order_relaxed);
  if (type != accelerator.torch_type) {
    // Throws if the type is unknown; the message lists the devices of the build.
    accelerator = Remember({ParseDeviceType(c10::DeviceTypeName(type, true)), type});
  }
  return accelerator.type;
}

c10::DeviceType TorchTypeOf(Device::Type type) {
  Accelerator accelerator = seen_accelerator.load(std::memory_order_relaxed);
  if (type != accelerator.type) accelerator = Remember(FindAccelerator(type));
  return accelerator.torch_type;
}

// True if the tensor's memory contains its values: it is not sparse, nested or meta, not a lazily
// conjugated, negated or zero tensor, and not a wrapper around another tensor.
bool IsPlain(const at::Tensor& tensor) {
  if (!IsStrided(tensor) || tensor.is_meta() || !tensor.has_storage()) return false;
  constexpr c10::DispatchKeySet unusual({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                         c10::DispatchKey::ZeroTensor, c10::DispatchKey::Conjugate,
                                         c10::DispatchKey::Negative});
  return !tensor.key_set().has_any(unusual);
}

// Torch's own kernels do not check this: they end the process, or use memory of others.
void CheckStorage(const at::Tensor& tensor) {
  const std::size_t needed = at::detail::computeStorageNbytes(
      tensor.sizes(), tensor.strides(), tensor.itemsize(), tensor.storage_offset());
  const std::size_t size = tensor.storage().nbytes();
  if (needed <= size) return;
  const std::string shape = DescribeShape({tensor.sizes().data(), tensor.sizes().size()});
  throw std::invalid_argument("the storage of a tensor of shape " + shape + " has " +
                              std::to_string(size) + " bytes, expected at least " +
                              std::to_string(needed) +
                              ": it was freed or resized; pass a tensor with memory");
}

// Makes the caller's stream the current one. In torch, a vendor's stream handle identifies the
// stream itself (an "external" stream).
class StreamScope {
 public:
  StreamScope(at::Device device, void* stream)
      : guard_(c10::impl::getDeviceGuardImpl(device.type())),
        previous_(guard_->exchangeStream(
            c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream)))) {}
  ~StreamScope() { guard_->exchangeStream(previous_); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  const c10::impl::DeviceGuardImplInterface* guard_;
  c10::Stream previous_;
};

// Calls a kernel. A template, so that the usual case contains nothing but the call.
template <Quirk quirk>
void Call(const generated::TorchKernel& kernel, const Invocation& invocation) {
  if constexpr (quirk == Quirk::kNone) {
    kernel.call(kernel.function, invocation.arguments);
  } else if constexpr (quirk == Quirk::kNeedsStep) {
    const Argument* given = invocation.arguments;
    const bool on_cpu = invocation.device.type() == Device::Type::kCpu;
    if (on_cpu || invocation.size > 3) return kernel.call(kernel.function, given);
    at::_ops::range_out::call(ToScalar(given[0].scalar), ToScalar(given[1].scalar), 1,
                              To<at::Tensor>::From(given[2]));
  } else {
    // If gradients are enabled, torch's `matmul` and operators based on it refuse a parameter as
    // input. They all have a quirk. Other kernels do not need this, which costs 20 ns.
    const c10::NoGradGuard without_gradients;
    const Copies copies(invocation, quirk);
    kernel.call(kernel.function, copies.data());
    copies.WriteBack();
  }
}

template <Quirk quirk>
void RunWith(const Invocation& invocation, const void* torch_kernel) {
  const auto& kernel = *static_cast<const generated::TorchKernel*>(torch_kernel);
  // The library is for inference, so autograd is skipped.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::optional<StreamScope> stream;
  if (invocation.stream && invocation.device.type() != Device::Type::kCpu) {
    stream.emplace(ToDevice(invocation.device), invocation.stream);
  }
  const Argument* end = invocation.arguments + invocation.size;
  if (std::none_of(invocation.arguments, end, NeedsWrapping)) {
    Call<quirk>(kernel, invocation);
    return;
  }
  WrappedArguments wrapped(invocation);
  wrapped.Separate(invocation.parameters);
  Invocation of_wrapped = invocation;
  of_wrapped.arguments = wrapped.data();
  Call<quirk>(kernel, of_wrapped);
  wrapped.Return();
}

}  // namespace

Kernel KernelOf(std::string_view operator_name) {
  switch (QuirkOf(operator_name)) {
    case Quirk::kNone:
      break;
    case Quirk::kIgnoresStrides:
      return RunWith<Quirk::kIgnoresStrides>;
    case Quirk::kIgnoresOutStrides:
      return RunWith<Quirk::kIgnoresOutStrides>;
    case Quirk::kIgnoresOverlap:
      return RunWith<Quirk::kIgnoresOverlap>;
    case Quirk::kTrustsOuts:
      return RunWith<Quirk::kTrustsOuts>;
    case Quirk::kTrustsDtype:
      return RunWith<Quirk::kTrustsDtype>;
    case Quirk::kNeedsStep:
      return RunWith<Quirk::kNeedsStep>;
  }
  return RunWith<Quirk::kNone>;
}

at::Scalar ToScalar(const Scalar& scalar) {
  switch (scalar.kind()) {
    case Scalar::Kind::kBool:
      return scalar.To<bool>();
    case Scalar::Kind::kUnsigned:
      return scalar.To<std::uint64_t>();
    case Scalar::Kind::kInt:
      return scalar.To<std::int64_t>();
    case Scalar::Kind::kDouble:
      return scalar.To<double>();
    case Scalar::Kind::kComplex:
      break;
  }
  return c10::complex<double>(scalar.To<double>(), scalar.imaginary());
}

std::vector<at::Scalar> ToScalars(const Argument& argument) {
  std::vector<at::Scalar> scalars;
  scalars.reserve(argument.size);
  for (std::uint32_t i = 0; i < argument.size; ++i) {
    scalars.push_back(ToScalar(argument.As<Scalar>()[i]));
  }
  return scalars;
}

// The arguments of the classes that `kernel.h` only declares.
static std::optional<at::Tensor> Make(std::optional<at::Tensor>*, const Argument& argument) {
  if (argument.tag == Argument::Tag::kNone) return std::nullopt;
  return *argument.As<at::Tensor>();
}

static at::ITensorListRef Make(at::ITensorListRef*, const Argument& argument) {
  return at::TensorList(argument.As<at::Tensor>(), argument.size);
}

static c10::List<std::optional<at::Tensor>> Make(c10::List<std::optional<at::Tensor>>*,
                                                 const Argument& argument) {
  c10::List<std::optional<at::Tensor>> tensors;
  tensors.reserve(argument.size);
  for (std::uint32_t i = 0; i < argument.size; ++i) {
    const at::Tensor& tensor = argument.As<at::Tensor>()[i];
    tensors.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  }
  return tensors;
}

template <typename T>
Hidden<T>::Hidden(const Argument& argument) {
  static_assert(sizeof(T) <= sizeof(bytes_) && alignof(T) <= alignof(void*));
  value_ = new (bytes_) T(Make(static_cast<T*>(nullptr), argument));
}

template <typename T>
Hidden<T>::~Hidden() {
  value_->~T();
}

template class Hidden<std::optional<at::Tensor>>;
template class Hidden<at::ITensorListRef>;
template class Hidden<c10::List<std::optional<at::Tensor>>>;

at::Device ToDevice(Device device) {
  if (device.type() == Device::Type::kCpu) return at::kCPU;
  return {TorchTypeOf(device.type()), static_cast<c10::DeviceIndex>(device.index())};
}

at::ScalarType ToScalarType(DataType data_type) {
  const auto type = static_cast<at::ScalarType>(data_type);
  // In a torch without this type, its value is that of `Undefined` or unused, which torch does not
  // check.
  if (type >= at::ScalarType::Undefined) {
    throw std::invalid_argument("this torch has no data type '" +
                                std::string(DataTypeName(data_type)) + "'");
  }
  return type;
}

const void* ElementOf(const void* tensors, std::size_t index) {
  const at::Tensor& tensor = static_cast<const at::Tensor*>(tensors)[index];
  return tensor.defined() ? &tensor : nullptr;
}

void CountWrites(const void* tensors, std::size_t size) {
  for (const at::Tensor& tensor : at::TensorList(static_cast<const at::Tensor*>(tensors), size)) {
    // Tensors created in inference mode have no version.
    if (tensor.defined() && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

Device DeviceOf(const void* tensor) {
  const at::Device device = AsTorch(tensor).device();
  return {TypeOf(device.type()), device.has_index() ? device.index() : 0};
}

Tensor ViewOf(const void* tensor) {
  const at::Tensor& torch = AsTorch(tensor);
  if (!IsPlain(torch)) return {};
  CheckStorage(torch);
  const auto shape = torch.sizes();
  const auto strides = torch.strides();
  return {torch.data_ptr(),
          {shape.data(), shape.size()},
          {strides.data(), strides.size()},
          static_cast<DataType>(torch.scalar_type()),
          DeviceOf(tensor)};
}

}  // namespace infini::ops::torch_backend
