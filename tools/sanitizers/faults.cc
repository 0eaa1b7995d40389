// Planted faults, by name: each sanitizer must report its own.

#include <climits>
#include <thread>
#include <vector>

namespace {

volatile int limit = INT_MAX;
volatile int shared = 0;

}  // namespace

extern "C" int beyond() {
  std::vector<char> storage(8);
  return storage.data()[limit - INT_MAX + 8];
}

extern "C" int overflow() { return limit + 1; }

// Often: of two accesses at the same moment, ThreadSanitizer can miss both.
extern "C" int race() {
  const auto increment = [] {
    for (int i = 0; i < 1000; ++i) ++shared;
  };
  std::thread other(increment);
  increment();
  other.join();
  return shared;
}
