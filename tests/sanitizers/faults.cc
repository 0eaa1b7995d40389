// Planted faults, by name: each sanitizer must report its own.

#include <climits>
#include <thread>
#include <vector>

namespace {

volatile int limit = INT_MAX;
int shared = 0;

}  // namespace

extern "C" int beyond() {
  std::vector<char> storage(8);
  return storage.data()[limit - INT_MAX + 8];
}

extern "C" int overflow() { return limit + 1; }

extern "C" int race() {
  std::thread other([] { ++shared; });
  ++shared;
  other.join();
  return shared;
}
