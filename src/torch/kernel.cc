#include "torch/kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <deque>
#include <list>
#include <stdexcept>

#include "torch/copies.h"
#include "torch/foreign.h"
#include "torch/overlap.h"
#include "torch/quirks.h"

namespace infini::ops::torch_backend {
namespace {

static_assert(static_cast<int>(DataType::kBFloat16) == static_cast<int>(at::kBFloat16));
static_assert(static_cast<int>(DataType::kBool) == static_cast<int>(at::kBool));
static_assert(static_cast<int>(DataType::kComplex128) == static_cast<int>(at::kComplexDouble));
static_assert(static_cast<int>(MemoryFormat::kChannelsLast3d) ==
              static_cast<int>(at::MemoryFormat::ChannelsLast3d));

const at::Tensor& AsTorch(const void* tensor) { return *static_cast<const at::Tensor*>(tensor); }

// The accelerator of this build and torch's type for it; the CPU where there is none. Looked up
// once: a call must not compare strings.
struct Accelerator {
  Device::Type type = Device::Type::kCpu;
  c10::DeviceType torch_type = c10::DeviceType::CPU;
};

const Accelerator& ThisAccelerator() {
  static const Accelerator accelerator = [] {
    for (const DeviceTypeInfo& info : kDeviceTypes) {
      if (info.type != Device::Type::kCpu && IsEnabled(info.type)) {
        return Accelerator{info.type, c10::Device(std::string(info.torch_name)).type()};
      }
    }
    return Accelerator{};
  }();
  return accelerator;
}

Device::Type TypeOf(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU) return Device::Type::kCpu;
  if (type == ThisAccelerator().torch_type) return ThisAccelerator().type;
  return ParseDeviceType(c10::DeviceTypeName(type, true));  // throws, with the devices of the build
}

at::IntArrayRef ToTorch(Span<std::int64_t> values) { return {values.data(), values.size()}; }

at::Tensor MakeAround(const Tensor& view) {
  const at::Device device = ToDevice(view.device());
  return at::for_blob(view.data(), ToTorch(view.shape()))
      .strides(ToTorch(view.strides()))
      .options(at::device(device).dtype(ToScalarType(view.data_type())))
      .target_device(device)
      .allocator(c10::GetAllocator(device.type()))
      .resizeable_storage()
      .make_tensor();
}

// A torch tensor around memory that is not torch's, for one call after another: making one costs
// 170 ns, pointing this one elsewhere 30.
class Shell {
 public:
  const at::Tensor& Around(const Tensor& view) {
    if (!view.defined()) {
      tensor_.reset();
      return tensor_;
    }
    // ATen checks this too, but in a function that must not throw, which ends the process.
    for (std::int64_t stride : view.strides()) {
      if (stride < 0) {
        throw std::invalid_argument(
            "torch takes no array with negative strides: " + Describe(view) + "; pass a copy");
      }
    }
    if (!IsReusable(view)) {
      tensor_ = MakeAround(view);
      keys_ = tensor_.key_set();
    } else {
      PointAt(view);
    }
    lent_ = view.data();
    return tensor_;
  }

  // To be called after the call, also one that failed. What others keep, a dispatch mode of Python
  // for one, gets a copy of the memory, which the view's owner will free; memory of torch's own
  // that the call has left here is freed.
  void TakeBack() {
    if (!tensor_.defined()) return;
    const at::Storage& storage = tensor_.storage();
    const bool is_lent = storage.data() == lent_;
    const bool is_kept = tensor_.use_count() > 1 || storage.use_count() > 1;
    if (is_lent && !is_kept) return;
    if (is_lent && storage.nbytes() > 0) {
      storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
          storage.allocator()->clone(lent_, storage.nbytes()));
    }
    // Moved, since what is freed can run code of Python's that comes here again.
    const at::Tensor kept = std::move(tensor_);
  }

 private:
  // Not where a call has left more in it than values, nor a tensor of inference mode outside it.
  bool IsReusable(const Tensor& view) const {
    return tensor_.defined() && tensor_.key_set() == keys_ &&
           tensor_.is_inference() == c10::InferenceMode::is_enabled() &&
           !tensor_.unsafeGetTensorImpl()->autograd_meta() &&
           tensor_.scalar_type() == static_cast<at::ScalarType>(view.data_type()) &&
           tensor_.device() == ToDevice(view.device());
  }

  void PointAt(const Tensor& view) {
    const auto shape = ToTorch(view.shape());
    const auto strides = ToTorch(view.strides());
    c10::StorageImpl* storage = tensor_.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(at::DataPtr(view.data(), tensor_.device()));
    storage->set_nbytes(at::detail::computeStorageNbytes(shape, strides, tensor_.itemsize()));
    tensor_.unsafeGetTensorImpl()->set_sizes_and_strides(shape, strides, 0);
  }

  at::Tensor tensor_;
  c10::DispatchKeySet keys_;
  const void* lent_ = nullptr;  // the memory that `tensor_` was put around
};

// Lends the shells of this thread to one call. Calls that run inside it get others.
class ShellLoan {
 public:
  ShellLoan() : pool_(ThreadPool()), first_(pool_.lent) {}
  ~ShellLoan() {
    for (; pool_.lent > first_; --pool_.lent) pool_.shells[pool_.lent - 1].TakeBack();
  }
  ShellLoan(const ShellLoan&) = delete;
  ShellLoan& operator=(const ShellLoan&) = delete;

  const at::Tensor& Around(const Tensor& view) {
    if (pool_.lent == pool_.shells.size()) pool_.shells.emplace_back();
    return pool_.shells[pool_.lent++].Around(view);
  }

 private:
  struct Pool {
    std::deque<Shell> shells;  // a deque, so that the tensors stay where they are
    std::size_t lent = 0;
  };
  static Pool& ThreadPool() {
    static thread_local Pool pool;
    return pool;
  }

  Pool& pool_;
  const std::size_t first_;
};

// The view at `index` of a tensor argument or a list of them; nullptr for what is none.
const Tensor* ViewAt(const Argument& argument, std::uint32_t index) {
  switch (argument.tag) {
    case Argument::Tag::kTensor:
    case Argument::Tag::kTensors:
      return argument.As<Tensor>() + index;
    case Argument::Tag::kArguments:
      return ViewAt(argument.As<Argument>()[index], 0);
    default:
      return nullptr;
  }
}

// True for a tensor whose memory holds its values as they are: not sparse, nested or meta,
// not a lazily conjugated, negated or zero one, not a wrapper around another tensor.
bool IsPlain(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_nested() || tensor.layout() != at::kStrided ||
      tensor.is_meta() || !tensor.has_storage()) {
    return false;
  }
  constexpr c10::DispatchKeySet unusual({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                         c10::DispatchKey::ZeroTensor, c10::DispatchKey::Conjugate,
                                         c10::DispatchKey::Negative});
  return !tensor.key_set().has_any(unusual) &&
         (tensor.numel() == 0 || tensor.storage().nbytes() > 0);
}

bool NeedsWrapping(const Argument& argument) {
  return argument.tag == Argument::Tag::kTensor || argument.tag == Argument::Tag::kTensors ||
         argument.tag == Argument::Tag::kArguments;
}

bool IsTensors(const Argument& argument) {
  return argument.tag == Argument::Tag::kForeignTensor ||
         argument.tag == Argument::Tag::kForeignTensors;
}

bool SameSizes(at::IntArrayRef sizes, Span<std::int64_t> view) {
  return std::equal(sizes.begin(), sizes.end(), view.begin(), view.end());
}

// Hands a view back to its owner, who would not see that ATen gave it another shape or other
// memory, and would take a part of the values, or old ones, for the result.
void Return(const Tensor& view, const at::Tensor& wrapped) {
  if (!view.defined()) return;
  if (!SameSizes(wrapped.sizes(), view.shape())) {
    throw std::invalid_argument("an output of shape " + c10::str(wrapped.sizes()) +
                                " was given as " + Describe(view) + ", which can't be resized");
  }
  if (wrapped.storage().use_count() > 1) {
    throw std::invalid_argument("the operator keeps the memory of a tensor, which " +
                                Describe(view) + " only lends; pass a torch tensor");
  }
  if (!SameSizes(wrapped.strides(), view.strides()) || wrapped.storage_offset() != 0 ||
      wrapped.requires_grad()) {
    throw std::invalid_argument("the operator changes more than the values of a tensor, which " +
                                Describe(view) + " can't follow; pass a torch tensor");
  }
  // A loss has used it as scratch of another shape, and torch has given it more memory for that.
  if (wrapped.storage().data() != view.data()) MakeAround(view).copy_(wrapped);
}

// The arguments of a call, with torch tensors around those that are not torch's.
class WrappedArguments {
 public:
  explicit WrappedArguments(const Invocation& invocation)
      : given_(invocation.arguments),
        arguments_(invocation.arguments, invocation.arguments + invocation.size) {
    for (Argument& argument : arguments_) {
      if (argument.tag == Argument::Tag::kTensor) {
        argument = Argument::ForeignTensor(&shells_.Around(*argument.As<Tensor>()));
      } else if (NeedsWrapping(argument)) {
        const auto& list = lists_.emplace_back(WrapList(argument));
        argument = Argument::ForeignTensors(list.data(), list.size());
      }
    }
  }

  const Argument* data() const { return arguments_.data(); }

  // Puts copies in place of the inputs whose memory the call may write: torch sees overlaps only
  // between tensors of one storage, which views never are. Throws `std::invalid_argument` for
  // outs that overlap.
  void Separate(Span<Parameter> parameters) {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!parameters[i].is_out) continue;
      for (std::size_t j = 0; j < TensorsAt(i).size(); ++j) {
        for (std::size_t k = 0; k < arguments_.size(); ++k) {
          if (parameters[k].type != Parameter::Type::kTensor) continue;
          parameters[k].is_out ? CheckApart(i, j, k) : SeparateFrom(i, j, k);
        }
      }
    }
  }

  // To be called after the kernel.
  void Return() const {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!NeedsWrapping(given_[i])) continue;
      for (std::uint32_t j = 0; j < given_[i].size; ++j) {
        const Tensor* view = ViewAt(given_[i], j);
        if (view && !IsCopied(i, j)) {
          torch_backend::Return(*view, arguments_[i].As<at::Tensor>()[j]);
        }
      }
    }
  }

 private:
  at::TensorList TensorsAt(std::size_t i) const {
    if (!IsTensors(arguments_[i])) return {};
    return {arguments_[i].As<at::Tensor>(), arguments_[i].size};
  }

  // Whether this tensor or that is a view. Torch sees to its own.
  bool AnyView(std::size_t i, std::size_t j, std::size_t k, std::size_t l) const {
    return (NeedsWrapping(given_[i]) && ViewAt(given_[i], j)) ||
           (NeedsWrapping(given_[k]) && ViewAt(given_[k], l));
  }

  bool IsCopied(std::size_t i, std::size_t j) const {
    return std::find(copied_.begin(), copied_.end(), std::pair(i, j)) != copied_.end();
  }

  void CheckApart(std::size_t i, std::size_t j, std::size_t k) const {
    for (std::size_t l = 0; l < TensorsAt(k).size(); ++l) {
      if (std::pair(i, j) >= std::pair(k, l) || !AnyView(i, j, k, l)) continue;
      if (Overlap(TensorsAt(i)[j], TensorsAt(k)[l])) {
        throw std::invalid_argument("two outs share memory, so that neither can be right");
      }
    }
  }

  void SeparateFrom(std::size_t i, std::size_t j, std::size_t k) {
    for (std::size_t l = 0; l < TensorsAt(k).size(); ++l) {
      const at::Tensor& input = TensorsAt(k)[l];
      if (!AnyView(i, j, k, l) || !MayOverlap(TensorsAt(i)[j], input)) continue;
      copied_.emplace_back(k, l);
      if (given_[k].tag == Argument::Tag::kTensor ||
          given_[k].tag == Argument::Tag::kForeignTensor) {
        arguments_[k] = Argument::ForeignTensor(&copies_.emplace_back(input.clone()));
      } else {
        const_cast<at::Tensor&>(input) = input.clone();  // an element of one of `lists_`
      }
    }
  }

  std::vector<at::Tensor> WrapList(const Argument& list) {
    std::vector<at::Tensor> tensors;
    tensors.reserve(list.size);
    for (std::uint32_t i = 0; i < list.size; ++i) {
      if (const Tensor* view = ViewAt(list, i)) {
        tensors.push_back(shells_.Around(*view));
      } else {
        const Argument& element = list.As<Argument>()[i];
        const bool is_torch = element.tag == Argument::Tag::kForeignTensor;
        tensors.push_back(is_torch ? *element.As<at::Tensor>() : at::Tensor());
      }
    }
    return tensors;
  }

  ShellLoan shells_;
  const Argument* given_;
  c10::SmallVector<Argument, 8> arguments_;
  // Linked lists: the addresses put into `arguments_` stay, and an empty one costs nothing.
  std::list<std::vector<at::Tensor>> lists_;
  std::list<at::Tensor> copies_;
  std::vector<std::pair<std::size_t, std::size_t>> copied_;  // argument and place in its list
};

// Makes the caller's stream the current one. A vendor's stream handle is its own identifier in
// torch (an "external" stream).
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

// Calls a kernel. A template, so that the common case has no more in it than its call.
template <Quirk quirk>
void Call(const generated::TorchKernel& kernel, const Invocation& invocation) {
  if constexpr (quirk == Quirk::kNone) {
    kernel.call(kernel.function, invocation.arguments);
  } else {
    const Copies copies(invocation, quirk);
    kernel.call(kernel.function, copies.data());
    copies.WriteBack();
  }
}

template <Quirk quirk>
void RunWith(const Invocation& invocation, const void* torch_kernel) {
  const auto& kernel = *static_cast<const generated::TorchKernel*>(torch_kernel);
  // The library is for inference.
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

Kernel RunnerOf(std::string_view operator_name) {
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
  return c10::complex<double>(scalar.ToComplex());
}

std::vector<at::Scalar> ToScalars(const Argument& argument) {
  std::vector<at::Scalar> scalars;
  scalars.reserve(argument.size);
  for (std::uint32_t i = 0; i < argument.size; ++i) {
    scalars.push_back(ToScalar(argument.As<Scalar>()[i]));
  }
  return scalars;
}

c10::List<std::optional<at::Tensor>> ToOptionalTensors(const Argument& argument) {
  c10::List<std::optional<at::Tensor>> tensors;
  tensors.reserve(argument.size);
  for (std::uint32_t i = 0; i < argument.size; ++i) {
    const at::Tensor& tensor = argument.As<at::Tensor>()[i];
    tensors.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  }
  return tensors;
}

at::Device ToDevice(Device device) {
  if (device.type() == Device::Type::kCpu) return at::kCPU;
  if (device.type() != ThisAccelerator().type) {
    throw std::invalid_argument("a tensor is on " + std::string(Info(device.type()).name) +
                                ", which this build of the library does not support");
  }
  return {ThisAccelerator().torch_type, static_cast<c10::DeviceIndex>(device.index())};
}

at::ScalarType ToScalarType(DataType data_type) {
  const auto type = static_cast<at::ScalarType>(data_type);
  // A torch from before the type has `Undefined` there, or nothing, which it does not check.
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
    // Tensors made in inference mode have no version.
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
  const auto shape = torch.sizes();
  const auto strides = torch.strides();
  return {torch.data_ptr(),
          {shape.data(), shape.size()},
          {strides.data(), strides.size()},
          static_cast<DataType>(torch.scalar_type()),
          DeviceOf(tensor)};
}

}  // namespace infini::ops::torch_backend
