#ifndef INFINI_OPS_CORE_EXPERTS_H_
#define INFINI_OPS_CORE_EXPERTS_H_

// The shapes of mixtures of experts, for every device.
namespace infini::ops {

struct Invocation;

// True if the shapes of a call of topk_softmax or topk_sigmoid match.
bool IsTopkGating(const Invocation& call);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_EXPERTS_H_
