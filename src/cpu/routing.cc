#include "cpu/routing.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "core/indices.h"
#include "cpu/convert.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/softmax.h"

#define INFINI_OPS_KERNELS "cpu/routing_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

// A tensor's elements in float32, contiguous: in place, or converted.
class FloatElements {
 public:
  explicit FloatElements(const Tensor& tensor) : data_(tensor.data<float>()) {
    if (tensor.data_type() == DataType::kFloat32 && tensor.is_contiguous()) return;
    converted_.reset(new float[tensor.element_count()]);
    data_ = converted_.get();
    Convert(tensor, Tensor(converted_.get(), tensor.shape(), DataType::kFloat32));
  }

  const float* data() const { return data_; }

 private:
  std::unique_ptr<float[]> converted_;
  const float* data_;
};

// An integer with the order of the number: NaN is above all others, and -0 is 0.
std::int32_t OrderOf(float number) {
  if (number != number) return std::numeric_limits<std::int32_t>::max();
  number += 0.0f;
  std::int32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits ^ (bits >> 31 & std::numeric_limits<std::int32_t>::max());
}

// Finds the places of the largest numbers of one row, the largest first. Of equal ones the first
// comes first.
class LargestFinder {
 public:
  explicit LargestFinder(std::int64_t most) : order_(static_cast<std::size_t>(most)) {}

  void Find(const float* numbers, std::int64_t count, std::int64_t wanted, std::int64_t* places) {
    if (wanted == 0) return;
    std::int32_t* const order = order_.data();
    for (std::int64_t i = 0; i < count; ++i) order[i] = OrderOf(numbers[i]);
    std::int64_t found = 0;
    std::int32_t least = 0;  // of those that were found
    for (std::int64_t begin = 0; begin < count; begin += kPart) {
      const std::int64_t end = std::min(begin + kPart, count);
      if (found == wanted && !HasLarger(order + begin, end - begin, least)) continue;
      for (std::int64_t i = begin; i < end; ++i) {
        if (found == wanted && order[i] <= least) continue;
        std::int64_t place = found < wanted ? found++ : wanted - 1;
        for (; place > 0 && order[places[place - 1]] < order[i]; --place) {
          places[place] = places[place - 1];
        }
        places[place] = i;
        least = order[places[found - 1]];
      }
    }
  }

 private:
  // Most parts have no number to insert, which vectors find out.
  static constexpr std::int64_t kPart = 16;

  static bool HasLarger(const std::int32_t* order, std::int64_t count, std::int32_t least) {
    std::int32_t largest = least;
    for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, order[i]);
    return largest > least;
  }

  std::vector<std::int32_t> order_;
};

class Router {
 public:
  Router(Scoring scoring, const Tensor& scores, bool renormalize, const std::optional<Tensor>& bias,
         const Tensor& weights, const Tensor& experts)
      : scoring_(scoring),
        count_(scores.shape()[1]),
        chosen_(weights.shape()[1]),
        renormalize_(renormalize),
        scores_(scores),
        weights_(weights),
        experts_(experts) {
    if (bias) bias_.emplace(*bias);
  }

  // Memory of one thread.
  struct Room {
    explicit Room(const Router& router)
        : finder(router.count_),
          probabilities(static_cast<std::size_t>(router.count_)),
          keys(static_cast<std::size_t>(router.count_)),
          places(static_cast<std::size_t>(router.chosen_)),
          scratch(static_cast<std::size_t>(SoftmaxScratch(router.count_))) {}

    LargestFinder finder;
    std::vector<float> probabilities;
    std::vector<float> keys;
    std::vector<std::int64_t> places;
    std::vector<char> scratch;
  };

  void Route(std::int64_t token, Room* room) const {
    const float* const scores = scores_.data() + token * count_;
    float* const probabilities = room->probabilities.data();
    if (scoring_ == Scoring::kSoftmax) {
      softmax_(scores, count_, count_, room->scratch.data(), probabilities);
    } else {
      sigmoid_(scores, count_, probabilities);
    }
    const float* keys = scores;
    if (bias_) {
      for (std::int64_t i = 0; i < count_; ++i) {
        room->keys[i] = probabilities[i] + bias_->data()[i];
      }
      keys = room->keys.data();
    }
    std::int64_t* const places = room->places.data();
    room->finder.Find(keys, count_, chosen_, places);
    float sum = 0;
    for (std::int64_t j = 0; j < chosen_; ++j) sum += probabilities[places[j]];
    const float divisor = renormalize_ && sum != 0 ? sum : 1;
    const Indices experts = experts_.Row(token);
    float* const weights = weights_.data<float>() + token * weights_.strides()[0];
    for (std::int64_t j = 0; j < chosen_; ++j) {
      weights[j * weights_.strides()[1]] = probabilities[places[j]] / divisor;
      experts.Write(j, places[j]);
    }
  }

 private:
  Scoring scoring_;
  SoftmaxFunction softmax_ = SoftmaxOf(DataType::kFloat32);
  void (*sigmoid_)(const float*, std::int64_t, float*) = INFINI_OPS_KERNEL(SigmoidRow);
  std::int64_t count_;   // experts
  std::int64_t chosen_;  // of them, for each token
  bool renormalize_;
  FloatElements scores_;
  std::optional<FloatElements> bias_;
  const Tensor& weights_;
  Indices experts_;
};

}  // namespace

void ChooseExperts(Scoring scoring, const Tensor& scores, bool renormalize,
                   const std::optional<Tensor>& bias, const Tensor& weights, const Tensor& experts,
                   const Tensor& token_expert_indices) {
  const std::int64_t tokens = weights.shape()[0];
  const std::int64_t chosen = weights.shape()[1];
  if (tokens == 0 || chosen == 0) return;
  const Router router(scoring, scores, renormalize, bias, weights, experts);
  const Indices numbers(token_expert_indices);
  // The softmax and the order take about four times as long as one operation per score.
  const std::int64_t grain = kElementsPerThread / (4 * scores.shape()[1]);
  ParallelFor(tokens, grain, [&](std::int64_t begin, std::int64_t end) {
    Router::Room room(router);
    for (std::int64_t token = begin; token < end; ++token) {
      router.Route(token, &room);
      for (std::int64_t j = 0; j < chosen; ++j) {
        numbers.Row(token).Write(j, j * tokens + token);
      }
    }
  });
}

}  // namespace infini::ops::cpu
