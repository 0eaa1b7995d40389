#ifndef INFINI_OPS_BINDINGS_LOCK_H_
#define INFINI_OPS_BINDINGS_LOCK_H_

#include <Python.h>

namespace infini::ops::bindings {

// Releases the interpreter lock for a scope.
class ReleasedLock {
 public:
  ReleasedLock() : state_(PyEval_SaveThread()) {}
  ~ReleasedLock() { PyEval_RestoreThread(state_); }
  ReleasedLock(const ReleasedLock&) = delete;
  ReleasedLock& operator=(const ReleasedLock&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_LOCK_H_
