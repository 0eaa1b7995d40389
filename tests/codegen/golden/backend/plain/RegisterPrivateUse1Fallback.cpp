// Generated from demo.yaml and the ATen schemas of torch TORCH. Do not edit.
// clang-format off
//
// Operators without a kernel of PrivateUse1 run on the CPU: their arguments are copied
// there, and their results back. If your backend has its own fallback, leave this file out of the
// build.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

namespace {

// Returns a generator of the CPU that draws what the seed of `generator` determines, and gives
// `generator` another seed. So a seed repeats the numbers, and each call draws others.
at::Generator cpu_generator(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  // SplitMix64, because the CPU uses half of the bits of a seed: https://doi.org/10.1145/2714064.2660195
  const uint64_t seed = generator.current_seed() + 0x9e3779b97f4a7c15;
  generator.set_current_seed(seed);
  uint64_t mixed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return at::detail::createCPUGenerator(mixed ^ (mixed >> 31));
}

// The default generator of the device of the arguments; none if the device has no generators.
std::optional<at::Generator> default_generator(at::ArrayRef<c10::IValue> arguments) {
  c10::DeviceIndex index = -1;
  for (const c10::IValue & each : arguments) {
    if (each.isTensor() && each.toTensor().defined() && each.toTensor().is_privateuseone()) {
      index = each.toTensor().device().index();
      break;
    }
  }
  if (!at::isPrivateUse1HooksRegistered()) return std::nullopt;
  try {
    return at::detail::getPrivateUse1Hooks().getDefaultGenerator(index);
  } catch (const c10::NotImplementedError &) {
    return std::nullopt;
  }
}

void fall_back_to_cpu(const c10::OperatorHandle & op, torch::jit::Stack * stack) {
  const c10::FunctionSchema & schema = op.schema();
  // The copy would be changed, not the tensor.
  TORCH_CHECK_NOT_IMPLEMENTED(!op.hasTag(at::Tag::inplace_view), schema.operator_name(),
                              " changes the tensor itself, which the CPU can't do: it needs a kernel "
                              "of PrivateUse1");
  if (const auto index = schema.argumentIndexWithName("generator")) {
    const auto arguments = torch::jit::last(*stack, schema.arguments().size());
    c10::IValue & generator = torch::jit::peek(*stack, *index, schema.arguments().size());
    if (generator.isNone()) generator = default_generator(arguments);
    if (generator.isGenerator() && generator.toGenerator().device().type() != at::kCPU) {
      generator = cpu_generator(generator.toGenerator());
    }
  }
  // A view of a copy would not share memory with the original tensor.
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back_to_cpu>());
}

// torch has kernels of these operators for every device, but they work only on torch's own devices.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char * name : {
           "conj_physical_",
       }) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fall_back_to_cpu>());
  }
}

// Autocast changes no data types here. If your backend has its own policy, define
// HAS_AUTOCASTPRIVATEUSE1.
#ifndef HAS_AUTOCASTPRIVATEUSE1
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
#endif

}  // namespace
