// A program without Python whose tensors lie on an accelerator; prints the results of its calls.
// The arguments are the name of the platform and torch's name of its device.

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/DeviceType.h>
#include <infini/ops/base/abs.h>
#include <infini/ops/base/add.h>
#include <infini/ops/base/aminmax.h>
#include <infini/ops/base/copy_inplace.h>
#include <infini/ops/base/fill_inplace.h>
#include <infini/ops/base/linear.h>
#include <infini/ops/base/neg.h>
#include <infini/ops/base/set_inplace.h>

#include <cstdio>
#include <string>
#include <vector>

using namespace infini::ops;

namespace {

Device::Type platform;

// Memory on a device, which the host can't read.
class Memory {
 public:
  explicit Memory(std::int64_t size, int index = 0) : device_(platform, index), size_(size) {
    const c10::DeviceGuard guard(
        c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)));
    memory_ = c10::GetAllocator(c10::kPrivateUse1)->allocate(size * sizeof(float));
  }

  Tensor View() const { return Part(0, size_); }
  Tensor Part(std::int64_t begin, std::int64_t end) const {
    return {static_cast<float*>(memory_.get()) + begin, {end - begin}, DataType::kFloat32, device_};
  }
  Tensor Shaped(Span<std::int64_t> shape, Span<std::int64_t> strides) const {
    return {memory_.get(), shape, strides, DataType::kFloat32, device_};
  }

  void Fill(std::vector<float> values) const {
    CopyInplace::Call(View(), Tensor(values.data(), {size_}, DataType::kFloat32));
  }

  std::string Values() const {
    std::vector<float> values(size_);
    CopyInplace::Call(Tensor(values.data(), {size_}, DataType::kFloat32), View());
    std::string text;
    for (float value : values) text += ' ' + std::to_string(static_cast<int>(value));
    return text;
  }

 private:
  Device device_;
  std::int64_t size_;
  c10::DataPtr memory_;
};

void Print(const char* what, const Memory& memory) {
  std::printf("%s:%s\n", what, memory.Values().c_str());
}

template <typename Function>
void PrintError(const char* what, Function function) {
  try {
    function();
    std::printf("%s: no error\n", what);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::printf("%s: %s\n", what, text.substr(0, text.find('\n')).c_str());
  }
}

void RunValues() {
  const Memory x(4), out(4);
  x.Fill({1, -2, 3, -4});
  Abs::Call(x.View(), out.View());
  Print("abs", out);
  FillInplace::Call(out.View(), 7);
  Add::Call(x.View(), out.View(), 2, out.View());
  Print("into an input", out);
  float number = 10;
  const Tensor on_cpu(&number, {}, DataType::kFloat32);
  Add::Call(on_cpu, x.View(), out.View());
  Print("with a number on the CPU", out);
  std::printf("ran on %s at slot %d\n", std::string(Info(LastCall().device).name).c_str(),
              LastCall().slot);
  Abs::Call(x.Part(0, 0), out.Part(0, 0));
  Print("nothing", out);
}

// The library keeps the tensors that wrap views for later calls.
void RunDevicesInTurn() {
  const Memory first(2, 0), second(2, 1);
  float on_cpu[2] = {-1, -2};
  for (int round = 0; round < 3; ++round) {
    first.Fill({-1, 2});
    second.Fill({-3, 4});
    Neg::Call(first.View(), first.View());
    Neg::Call(second.View(), second.View());
    const Tensor view(on_cpu, {2}, DataType::kFloat32);
    Neg::Call(view, view);
  }
  Print("first", first);
  Print("second", second);
  std::printf("on the CPU: %g %g\n", on_cpu[0], on_cpu[1]);
  PrintError("both", [&] { Add::Call(first.View(), second.View(), first.View()); });
}

void RunMemory() {
  const Memory x(5);
  x.Fill({1, 2, 3, 4, 5});
  Add::Call(x.Part(0, 4), x.Part(0, 4), x.Part(1, 5));
  Print("shifted", x);
  PrintError("two outs", [&] { Aminmax::Call(x.View(), x.Part(0, 1), x.Part(0, 1)); });
  PrintError("short out", [&] { Neg::Call(x.View(), x.Part(0, 2)); });
  PrintError("kept", [&] { SetInplace::Call(x.Part(0, 2), x.Part(3, 5)); });
  Neg::Call(x.View(), x.View());
  Print("after the errors", x);
  const Memory matrix(4), weight(4), out(4);
  matrix.Fill({1, 2, 3, 4});
  weight.Fill({1, 0, 1, 1});
  Linear::Call(matrix.Shaped({2, 2}, {2, 1}), weight.Shaped({2, 2}, {2, 1}),
               out.Shaped({2, 2}, {1, 2}));
  Print("strided", out);
}

void RunOptions() {
  const Memory x(2, 1);
  x.Fill({-5, 6});
  const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
  const auto stream = [&](int index) {
    return static_cast<long>(
        guard.getStream({c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)}).id());
  };
  Neg::Call(x.View(), x.View(), CallOptions{8, reinterpret_cast<void*>(1234)});
  Print("with a stream", x);
  PrintError("with a stream", [&] {
    Neg::Call(x.View(), x.Part(0, 1), CallOptions{8, reinterpret_cast<void*>(1234)});
  });
  std::printf("current: device %d, streams %ld %ld\n", guard.getDevice().index(), stream(0),
              stream(1));
  PrintError("slot 0", [&] { Add::Call(x.View(), x.View(), x.View(), CallOptions{0}); });
  const Tensor elsewhere(x.View().data(), {2}, DataType::kFloat32, Device(platform, 0));
  PrintError("memory of device 1", [&] { Neg::Call(elsewhere, elsewhere); });
  float memory[2];
  const Tensor on_host(memory, {2}, DataType::kFloat32, platform);
  PrintError("memory of the host", [&] { Neg::Call(on_host, on_host); });
  const Tensor nowhere(memory, {2}, DataType::kFloat32, Device(platform, 9));
  PrintError("device 9", [&] { Neg::Call(nowhere, nowhere); });
}

// Prints the device and the stream that a native kernel gets.
void PrintRun(const Invocation& invocation, const void*) {
  std::printf("native: device %d, stream %ld\n", invocation.device.index(),
              reinterpret_cast<long>(invocation.stream));
}

void RunNative(const Tensor& tensor, void* stream = nullptr) {
  static constexpr Parameter parameters[] = {Parameter(Parameter::Type::kTensor, "out").Out()};
  static const bool registered = [] {
    Register("probe", "out", {parameters, 1}, {platform, 0, PrintRun});
    return true;
  }();
  if (registered) Dispatch(FindOverload("probe", "out"), {tensor}, {std::nullopt, stream});
}

void RunStreams() {
  const Memory x(1, 1);
  const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
  RunNative(x.View());
  const c10::Device device(c10::kPrivateUse1, 1);
  const auto previous = guard.exchangeStream(c10::Stream(c10::Stream::UNSAFE, device, 77));
  PrintError("current", [&] { RunNative(x.View()); });
  RunNative(x.View(), reinterpret_cast<void*>(1234));
  guard.exchangeStream(previous);
}

}  // namespace

int main(int, char** arguments) {
  platform = ParseDeviceType(arguments[1]);
  float memory[2];
  const Tensor early(memory, {2}, DataType::kFloat32, platform);
  PrintError("before it has its name", [&] { Neg::Call(early, early); });
  RunNative(early);
  c10::register_privateuse1_backend(arguments[2]);
  RunValues();
  RunDevicesInTurn();
  RunMemory();
  RunOptions();
  RunStreams();
}
