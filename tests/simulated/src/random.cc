// Random numbers, from the generator of the device.

#include "PrivateUse1NativeFunctions.h"
#include "generator.h"
#include "tensors.h"

namespace simulated {

using OptionalGenerator = std::optional<at::Generator>;

at::Tensor& Kernels::bernoulli_(at::Tensor& self, double p, OptionalGenerator generator) {
  OnHost(self).bernoulli_(p, HostGenerator(generator));
  return self;
}

at::Tensor& Kernels::normal_(at::Tensor& self, double mean, double std,
                             OptionalGenerator generator) {
  OnHost(self).normal_(mean, std, HostGenerator(generator));
  return self;
}

at::Tensor& Kernels::random_(at::Tensor& self, OptionalGenerator generator) {
  OnHost(self).random_(HostGenerator(generator));
  return self;
}

at::Tensor& Kernels::random_(at::Tensor& self, int64_t from, std::optional<int64_t> to,
                             OptionalGenerator generator) {
  OnHost(self).random_(from, to, HostGenerator(generator));
  return self;
}

at::Tensor& Kernels::random_(at::Tensor& self, int64_t to, OptionalGenerator generator) {
  OnHost(self).random_(to, HostGenerator(generator));
  return self;
}

at::Tensor& Kernels::uniform_(at::Tensor& self, double from, double to,
                              OptionalGenerator generator) {
  OnHost(self).uniform_(from, to, HostGenerator(generator));
  return self;
}

}  // namespace simulated
