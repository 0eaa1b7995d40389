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
  // Null: no elements.
  explicit FloatElements(const Tensor* tensor) {
    if (!tensor) return;
    data_ = tensor->data<float>();
    if (tensor->data_type() == DataType::kFloat32 && tensor->is_contiguous()) return;
    converted_.reset(new float[tensor->element_count()]);
    data_ = converted_.get();
    Convert(*tensor, Tensor(converted_.get(), tensor->shape(), DataType::kFloat32));
  }

  const float* data() const { return data_; }

 private:
  std::unique_ptr<float[]> converted_;
  const float* data_ = nullptr;
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
  Router(const Routing& routing, const Tensor& scores, const std::optional<Tensor>& bias,
         const Tensor& weights, const Tensor& experts)
      : routing_(routing),
        count_(scores.shape()[1]),
        chosen_(weights.shape()[1]),
        scores_(&scores),
        bias_(bias ? &*bias : nullptr),
        weights_(weights),
        experts_(experts) {}

  // Memory of one thread.
  struct Room {
    explicit Room(const Router& router)
        : finder(router.count_),
          weights(static_cast<std::size_t>(router.count_)),
          keys(static_cast<std::size_t>(2 * router.count_)),
          places(static_cast<std::size_t>(router.count_)),
          groups(static_cast<std::size_t>(router.routing_.groups)),
          scratch(static_cast<std::size_t>(SoftmaxScratch(router.count_))) {}

    LargestFinder finder;
    std::vector<float> weights;
    std::vector<float> keys;  // of all experts, and then of groups and of the experts in them
    std::vector<std::int64_t> places;
    std::vector<std::int64_t> groups;
    std::vector<char> scratch;
  };

  void Route(std::int64_t token, Room* room) const {
    const float* const scores = scores_.data() + token * count_;
    const float* const weights = WeightsOf(scores, room);
    const float* keys = scores;
    if (const float* const bias = bias_.data()) {
      float* const sums = room->keys.data();
      for (std::int64_t i = 0; i < count_; ++i) sums[i] = weights[i] + bias[i];
      keys = sums;
    }
    if (routing_.groups > 1) {
      FindInGroups(keys, room);
    } else {
      room->finder.Find(keys, count_, chosen_, room->places.data());
    }
    Write(token, weights, room->places.data());
  }

 private:
  const float* WeightsOf(const float* scores, Room* room) const {
    float* const weights = room->weights.data();
    switch (routing_.scoring) {
      case Scoring::kNone:
        return scores;
      case Scoring::kSoftmax:
        softmax_(scores, count_, count_, 1, room->scratch.data(), weights);
        return weights;
      case Scoring::kSigmoid:
        sigmoid_(scores, count_, weights);
    }
    return weights;
  }

  void FindInGroups(const float* keys, Room* room) const {
    const std::int64_t size = count_ / routing_.groups;
    const std::int64_t kept = routing_.kept_groups;
    std::int64_t* const places = room->places.data();
    std::int64_t* const groups = room->groups.data();
    float* const found = room->keys.data() + count_;
    for (std::int64_t group = 0; group < routing_.groups; ++group) {
      const float* const own = keys + group * size;
      room->finder.Find(own, size, std::min<std::int64_t>(2, size), places);
      found[group] = size > 1 ? own[places[0]] + own[places[1]] : own[0];
    }
    room->finder.Find(found, routing_.groups, kept, groups);
    std::sort(groups, groups + kept);
    for (std::int64_t i = 0; i < kept; ++i) {
      std::copy_n(keys + groups[i] * size, size, found + i * size);
    }
    room->finder.Find(found, kept * size, chosen_, places);
    for (std::int64_t j = 0; j < chosen_; ++j) {
      places[j] = groups[places[j] / size] * size + places[j] % size;
    }
  }

  void Write(std::int64_t token, const float* weights, const std::int64_t* places) const {
    float sum = 0;
    for (std::int64_t j = 0; j < chosen_; ++j) sum += weights[places[j]];
    const float divisor = routing_.renormalize && sum != 0 ? sum : 1;
    const Indices experts = experts_.Row(token);
    float* const to = weights_.data<float>() + token * weights_.strides()[0];
    for (std::int64_t j = 0; j < chosen_; ++j) {
      to[j * weights_.strides()[1]] = weights[places[j]] / divisor * routing_.factor;
      experts.Write(j, places[j]);
    }
  }

  const Routing& routing_;
  SoftmaxFunction softmax_ = SoftmaxOf(DataType::kFloat32);
  void (*sigmoid_)(const float*, std::int64_t, float*) = INFINI_OPS_KERNEL(SigmoidRow);
  std::int64_t count_;   // experts
  std::int64_t chosen_;  // of them, for each token
  FloatElements scores_;
  FloatElements bias_;  // none: null
  const Tensor& weights_;
  Indices experts_;
};

}  // namespace

void ChooseExperts(const Routing& routing, const Tensor& scores, const std::optional<Tensor>& bias,
                   const Tensor& weights, const Tensor& experts) {
  if (weights.element_count() == 0) return;
  const Router router(routing, scores, bias, weights, experts);
  // The weights and the order take about four times as long as one operation per score.
  const std::int64_t grain = kElementsPerThread / (4 * scores.shape()[1]);
  ParallelFor(weights.shape()[0], grain, [&](std::int64_t begin, std::int64_t end) {
    Router::Room room(router);
    for (std::int64_t token = begin; token < end; ++token) router.Route(token, &room);
  });
}

void NumberChoices(const Tensor& token_expert_indices) {
  const Indices numbers(token_expert_indices);
  const std::int64_t tokens = token_expert_indices.shape()[0];
  for (std::int64_t token = 0; token < tokens; ++token) {
    const Indices row = numbers.Row(token);
    for (std::int64_t j = 0; j < token_expert_indices.shape()[1]; ++j) {
      row.Write(j, j * tokens + token);
    }
  }
}

}  // namespace infini::ops::cpu
