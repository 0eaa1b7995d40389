// Nanoseconds per call through the library's dispatch and through ATen's own entry point. Prints
// lines `operator variant ns ns ...`, with one value per round. The variants of an operator run in
// turns, so that other load on the machine affects all of them.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/equal_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/ones_ops.h>
#include <ATen/ops/zero_ops.h>
#include <infini/ops/base/abs.h>
#include <infini/ops/base/add.h>
#include <infini/ops/base/addmm.h>
#include <infini/ops/base/amax.h>
#include <infini/ops/base/mm.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

namespace {

using infini::ops::Argument;
using infini::ops::CallOptions;
using infini::ops::DataType;

constexpr int kCallsPerRound = 2000;
constexpr int kTorchSlot = static_cast<int>(infini::ops::Slot::kTorch);

at::Tensor Filled(at::IntArrayRef shape, double value) {
  at::Tensor tensor = at::_ops::ones::call(c10::fromIntArrayRefSlow(shape), at::kFloat,
                                           std::nullopt, std::nullopt, std::nullopt);
  return at::_ops::fill__Scalar::call(tensor, value);
}

infini::ops::Tensor View(const at::Tensor& tensor) {
  return {tensor.data_ptr(), {tensor.sizes().data(), tensor.sizes().size()}, DataType::kFloat32};
}

// CPU time of this thread, so that waiting for a core does not count.
double NanosecondsOfThread() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// The loop and the call are compiled together, so that no variant has an additional indirection.
template <typename Call>
double NanosecondsPerCall(const Call& call) {
  const double start = NanosecondsOfThread();
  for (int i = 0; i < kCallsPerRound; ++i) call();
  return (NanosecondsOfThread() - start) / kCallsPerRound;
}

struct Variant {
  std::string name;
  std::function<void()> call_once;
  std::function<double()> time_round;
  std::vector<double> nanoseconds = {};
};

// All variants of calling one operator. The first one provides the expected result.
class Comparison {
 public:
  Comparison(const char* name, at::Tensor out) : name_(name), out_(std::move(out)) {}

  template <typename Call>
  void Add(const char* variant, const Call& call) {
    variants_.push_back({variant, call, [call] { return NanosecondsPerCall(call); }});
  }

  void Run(int rounds) {
    for (Variant& variant : variants_) Check(variant);
    for (int round = 0; round < rounds; ++round) {
      for (Variant& variant : variants_) variant.nanoseconds.push_back(variant.time_round());
    }
    for (const Variant& variant : variants_) {
      std::printf("%s %s", name_, variant.name.c_str());
      for (double nanoseconds : variant.nanoseconds) std::printf(" %.1f", nanoseconds);
      std::printf("\n");
    }
  }

 private:
  void Check(const Variant& variant) {
    at::_ops::zero_::call(out_);
    variant.call_once();
    if (!expected_.defined()) expected_ = at::_ops::add_Scalar::call(out_, 0, 1);
    if (!at::_ops::equal::call(out_, expected_)) {
      std::fprintf(stderr, "%s: %s does not compute what %s does\n", name_, variant.name.c_str(),
                   variants_.front().name.c_str());
      std::exit(1);
    }
  }

  const char* name_;
  at::Tensor out_;
  at::Tensor expected_;
  std::vector<Variant> variants_;
};

// `reference()` calls ATen's entry point, `typed(options)` the operator class with views.
// `arguments` are torch's own tensors for the dispatch.
template <typename Reference, typename Typed, std::size_t size>
void Compare(const char* name, const char* overload_name, int rounds, const at::Tensor& out,
             const Reference& reference, const Typed& typed,
             const std::array<Argument, size>& arguments) {
  const infini::ops::Overload& overload = infini::ops::FindOverload(name, overload_name);
  const auto dispatch = [&](const CallOptions& options) {
    infini::ops::Dispatch(overload, arguments, options);
  };
  Comparison comparison(name, out);
  comparison.Add("aten", reference);
  comparison.Add("aten-below-autograd", [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    reference();
  });
  comparison.Add("torch-slot-8", [&] { dispatch({kTorchSlot}); });
  comparison.Add("torch-default", [&] { dispatch({}); });
  comparison.Add("view-slot-8", [&] { typed({kTorchSlot}); });
  comparison.Add("view-default", [&] { typed({}); });
  comparison.Run(rounds);
}

Argument Foreign(const at::Tensor& tensor) { return Argument::ForeignTensor(&tensor); }

void CompareAll(int rounds) {
  namespace ops = infini::ops;
  at::Tensor a = Filled({4, 4}, -1.5), b = Filled({4, 4}, 2), c = Filled({4, 4}, 0.25);
  at::Tensor out = Filled({4, 4}, 0), row = Filled({4}, 0);
  const ops::Tensor va = View(a), vb = View(b), vc = View(c), vout = View(out), vrow = View(row);

  Compare(
      "abs", "out", rounds, out, [&] { at::_ops::abs_out::call(a, out); },
      [&](const CallOptions& options) { ops::Abs::Call(va, vout, options); },
      std::array{Foreign(a), Foreign(out)});
  Compare(
      "add", "out", rounds, out, [&] { at::_ops::add_out::call(a, b, 2, out); },
      [&](const CallOptions& options) { ops::Add::Call(va, vb, 2, vout, options); },
      std::array{Foreign(a), Foreign(b), Argument(2), Foreign(out)});
  Compare(
      "mm", "out", rounds, out, [&] { at::_ops::mm_out::call(a, b, out); },
      [&](const CallOptions& options) { ops::Mm::Call(va, vb, vout, options); },
      std::array{Foreign(a), Foreign(b), Foreign(out)});
  Compare(
      "addmm", "out", rounds, out, [&] { at::_ops::addmm_out::call(a, b, c, 1, 2, out); },
      [&](const CallOptions& options) { ops::Addmm::Call(va, vb, vc, 1, 2, vout, options); },
      std::array{Foreign(a), Foreign(b), Foreign(c), Argument(1), Argument(2), Foreign(out)});
  const std::int64_t dimension = 1;
  Compare(
      "amax", "out", rounds, row, [&] { at::_ops::amax_out::call(a, dimension, false, row); },
      [&](const CallOptions& options) {
        ops::Amax::Call(va, {&dimension, 1}, false, vrow, options);
      },
      std::array{Foreign(a), Argument(ops::Span<std::int64_t>(&dimension, 1)), Argument(false),
                 Foreign(row)});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s ROUNDS\n", argv[0]);
    return 2;
  }
  CompareAll(std::atoi(argv[1]));
}
