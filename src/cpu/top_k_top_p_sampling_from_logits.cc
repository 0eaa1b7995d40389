#include "base/top_k_top_p_sampling_from_logits.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "core/indices.h"
#include "core/philox.h"
#include "cpu/convert.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "infini/ops/tensor.h"

#define INFINI_OPS_KERNELS "cpu/top_k_top_p_sampling_from_logits_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {
namespace cpu {
namespace {

// The filters and the random number of a row.
struct Draw {
  std::int64_t top_k;
  float top_p;
  bool is_joint;
  std::uint64_t random;
};

// Draws tokens from rows of one size. Weights are whole numbers, so that the order of their sums
// does not matter.
class Sampler {
 public:
  explicit Sampler(std::int64_t size)
      : size_(size),
        maxima_(static_cast<std::size_t>((size + kBlock - 1) / kBlock)),
        values_(new float[size + kMostLanes]),
        weights_(new std::int64_t[size + kMostLanes]),
        tokens_(new std::int32_t[size]) {}

  std::int64_t Sample(const float* row, const Draw& draw) {
    INFINI_OPS_KERNEL(BlockMaxima)(row, size_, kBlock, maxima_.data());
    largest_ = *std::max_element(maxima_.begin(), maxima_.end());
    if (largest_ == kNoLogit) return -1;
    const bool is_filtered = 0 < draw.top_k && draw.top_k < size_;
    const bool needs_all = !is_filtered || (draw.is_joint && draw.top_p < 1);
    Gather(row, needs_all ? kNoLogit : LeastOfTopK(draw.top_k));
    std::int64_t total = needs_all ? Weigh() : 0;
    if (is_filtered) {
      KeepTopK(draw.top_k);
      const std::int64_t kept = Weigh();
      if (!needs_all) total = kept;
    }
    const std::int64_t least = draw.top_p < 1 ? LeastOfTopP(draw.top_p, total) : 0;
    return DrawFrom(least, draw.random);
  }

 private:
  static constexpr std::int64_t kBlock = 64;
  static constexpr float kNoLogit = -std::numeric_limits<float>::infinity();
  static constexpr std::int64_t kOne = std::int64_t{1} << 40;  // the weight of the largest logit

  // A number that the k largest logits reach: so many blocks have one that does.
  float LeastOfTopK(std::int64_t k) {
    if (k > static_cast<std::int64_t>(maxima_.size())) return kNoLogit;
    floats_ = maxima_;
    std::nth_element(floats_.begin(), floats_.begin() + (k - 1), floats_.end(), std::greater<>());
    return floats_[static_cast<std::size_t>(k - 1)];
  }

  // Finds the logits of at least `least`, in the order of their tokens.
  void Gather(const float* row, float least) {
    count_ = 0;
    for (std::int64_t begin = 0; begin < size_; begin += kBlock) {
      if (maxima_[static_cast<std::size_t>(begin / kBlock)] < least) continue;
      const std::int64_t end = std::min(begin + kBlock, size_);
      for (std::int64_t i = begin; i < end; ++i) {
        values_[count_] = row[i];
        tokens_[count_] = static_cast<std::int32_t>(i);
        count_ += row[i] >= least;
      }
    }
  }

  void KeepTopK(std::int64_t k) {
    if (k >= count_) return;
    floats_.assign(values_.get(), values_.get() + count_);
    std::nth_element(floats_.begin(), floats_.begin() + (k - 1), floats_.end(), std::greater<>());
    const float least = floats_[static_cast<std::size_t>(k - 1)];
    const std::int64_t count = count_;
    count_ = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      values_[count_] = values_[i];
      tokens_[count_] = tokens_[i];
      count_ += values_[count_] >= least;
    }
  }

  // Returns the sum of the weights.
  std::int64_t Weigh() {
    std::fill_n(values_.get() + count_, kMostLanes, kNoLogit);
    INFINI_OPS_KERNEL(Weigh)(values_.get(), count_, largest_, static_cast<float>(kOne),
                             weights_.get());
    return std::accumulate(weights_.get(), weights_.get() + count_, std::int64_t{0});
  }

  // The smallest of the fewest weights whose sum is at least `top_p` of the total.
  std::int64_t LeastOfTopP(float top_p, std::int64_t total) {
    const double share = std::max(0.0, static_cast<double>(top_p));
    const auto needed = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(total)));
    // Smaller weights than this one are too few for the rest, even if all are.
    const double few = (1 - share) * static_cast<double>(total) / static_cast<double>(size_);
    const auto least = std::min(kOne, static_cast<std::int64_t>(few));
    integers_.clear();
    std::copy_if(weights_.get(), weights_.get() + count_, std::back_inserter(integers_),
                 [&](std::int64_t weight) { return weight >= least; });
    // The smallest one is among those from `begin` to before `end`, if they are sorted.
    auto begin = integers_.begin();
    auto end = integers_.end();
    std::int64_t before = 0;
    while (end - begin > 1) {
      const auto middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end, std::greater<>());
      const std::int64_t sum = std::accumulate(begin, middle, before);
      if (sum >= needed) {
        end = middle;
      } else {
        before = sum;
        begin = middle;
      }
    }
    return *begin;
  }

  // The token at a random place in the weights that are not less than `least`.
  std::int64_t DrawFrom(std::int64_t least, std::uint64_t random) const {
    const auto kept = [&](std::int64_t i) { return weights_[i] >= least ? weights_[i] : 0; };
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < count_; ++i) total += kept(i);
    __extension__ using Product = unsigned __int128;
    const Product product = Product{random} * static_cast<std::uint64_t>(total);
    auto rest = static_cast<std::int64_t>(product >> 64);
    std::int64_t i = 0;
    for (; rest >= kept(i); ++i) rest -= kept(i);
    return tokens_[i];
  }

  std::int64_t size_;
  float largest_ = 0;
  std::int64_t count_ = 0;  // of the values, their weights and tokens
  std::vector<float> maxima_;
  std::unique_ptr<float[]> values_;
  std::unique_ptr<std::int64_t[]> weights_;
  std::unique_ptr<std::int32_t[]> tokens_;
  std::vector<float> floats_;
  std::vector<std::int64_t> integers_;
};

// The rows of logits, as contiguous float32.
class LogitRows {
 public:
  explicit LogitRows(const Tensor& logits)
      : logits_(logits),
        is_converted_(logits.data_type() != DataType::kFloat32 || logits.strides()[1] != 1),
        buffer_(is_converted_ ? new float[logits.shape()[1]] : nullptr) {}

  const float* Read(std::int64_t i) const {
    const auto size = static_cast<std::int64_t>(DataTypeSize(logits_.data_type()));
    char* const data = logits_.data<char>() + i * logits_.strides()[0] * size;
    if (!is_converted_) return reinterpret_cast<const float*>(data);
    const std::int64_t one = 1;
    const Span<std::int64_t> shape{logits_.shape().data() + 1, 1};
    Convert({data, shape, {logits_.strides().data() + 1, 1}, logits_.data_type(), logits_.device()},
            {buffer_.get(), shape, {&one, 1}, DataType::kFloat32, logits_.device()});
    return buffer_.get();
  }

 private:
  const Tensor& logits_;
  bool is_converted_;
  std::unique_ptr<float[]> buffer_;
};

}  // namespace
}  // namespace cpu

template <>
struct Operator<TopKTopPSamplingFromLogits, Device::Type::kCpu, 0> {
  static void Run(const Tensor& logits, std::int64_t top_k, double top_p, std::int64_t seed,
                  std::int64_t offset, bool joint, const std::optional<Tensor>& top_ks,
                  const std::optional<Tensor>& top_ps, const std::optional<Tensor>& seeds,
                  const Tensor& out) {
    const std::int64_t size = logits.shape()[1];
    const auto draw_of = [&](std::int64_t i) {
      cpu::Draw draw{top_k, static_cast<float>(top_p), joint, 0};
      if (top_ks) draw.top_k = Indices(*top_ks)(i);
      if (top_ps) draw.top_p = top_ps->data<float>()[i * top_ps->strides()[0]];
      const std::int64_t key = seeds ? Indices(*seeds)(i) : seed;
      draw.random = Philox(static_cast<std::uint64_t>(key), static_cast<std::uint64_t>(offset),
                           seeds ? 0 : static_cast<std::uint64_t>(i));
      return draw;
    };
    const auto write = [&](std::int64_t i, std::int64_t token) {
      const std::int64_t place = i * out.strides()[0];
      if (out.data_type() == DataType::kInt64) {
        out.data<std::int64_t>()[place] = token;
      } else {
        out.data<std::int32_t>()[place] = static_cast<std::int32_t>(token);
      }
    };
    const auto run = [&](std::int64_t begin, std::int64_t end) {
      const cpu::LogitRows rows(logits);
      cpu::Sampler sampler(size);
      for (std::int64_t i = begin; i < end; ++i) write(i, sampler.Sample(rows.Read(i), draw_of(i)));
    };
    cpu::ParallelFor(logits.shape()[0], cpu::kElementsPerThread / std::max<std::int64_t>(size, 1),
                     run);
  }
};

INFINI_OPS_REGISTER(TopKTopPSamplingFromLogits, Device::Type::kCpu, 0);

}  // namespace infini::ops
