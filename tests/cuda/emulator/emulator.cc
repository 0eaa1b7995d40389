#include "emulator.h"

#include <sanitizer/common_interface_defs.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>

#include "cuda_runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// The section where the linker puts __shared__ variables; null if there are none.
extern char __start_emulated_shared[] __attribute__((weak));
extern char __stop_emulated_shared[] __attribute__((weak));

extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

namespace emulator {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr std::size_t kDefaultSharedLimit = 48 << 10;
constexpr std::size_t kLargestSharedLimit = 227 << 10;  // of sm_90

// A stack to switch to. AddressSanitizer gets a notice of every switch.
struct Fiber {
  ucontext_t context = {};
  std::unique_ptr<char[]> stack;
  const void* bottom = nullptr;
  std::size_t size = 0;
  void* fake_stack = nullptr;
};

struct Thread {
  enum class State { kReady, kAtBarrier, kInWarp, kDone };

  uint3 index;
  State state = State::kReady;
  Place place;
  unsigned mask = 0, source = 0;
  std::uint64_t sent = 0, received = 0;
  Fiber* fiber = nullptr;
};

std::mt19937 random_order;
bool is_shuffled = false;
std::vector<Launch> launches;
std::vector<std::string> runtime_calls;
std::map<const void*, std::size_t> shared_limits;

Fiber scheduler;
std::deque<Fiber> fibers;  // a deque, whose elements keep their addresses
std::vector<Fiber*> idle;  // of these
Fiber* running = &scheduler;

const std::function<void()>* kernel;
std::vector<Thread> threads;  // of the running block, by linear index
Thread* current;
std::vector<std::uint64_t> dynamic_shared;

void SwitchTo(Fiber& to) {
  Fiber& from = *running;
  running = &to;
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
  swapcontext(&from.context, &to.context);
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}

// Runs one thread after another.
void FiberMain() {
  __sanitizer_finish_switch_fiber(nullptr, &scheduler.bottom, &scheduler.size);
  while (true) {
    (*kernel)();
    current->state = Thread::State::kDone;
    idle.push_back(running);
    SwitchTo(scheduler);
  }
}

Fiber& MakeFiber() {
  Fiber& fiber = fibers.emplace_back();
  fiber.stack.reset(new char[kStackBytes]);  // not make_unique, which would initialize all of it
  fiber.bottom = fiber.stack.get();
  fiber.size = kStackBytes;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber.context, &FiberMain, 0);
  return fiber;
}

// Lets a thread run until it waits.
void Resume(Thread& thread) {
  current = &thread;
  threadIdx = thread.index;
  if (!thread.fiber && idle.empty()) idle.push_back(&MakeFiber());
  if (!thread.fiber) {
    thread.fiber = idle.back();
    idle.pop_back();
  }
  SwitchTo(*thread.fiber);
}

void Wait(Thread::State state, const Place& place) {
  current->state = state;
  current->place = place;
  SwitchTo(scheduler);
}

std::string Text(const uint3& index) {
  return '(' + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ')';
}

std::string Describe(const Thread& thread) {
  if (thread.state == Thread::State::kDone) return "left the kernel";
  const std::string file = thread.place.file;
  return std::string("waits at ") + thread.place.what + ", " +
         file.substr(file.find_last_of('/') + 1) + ':' + std::to_string(thread.place.line);
}

// "block (0, 0, 0): 1 of 64 threads left the kernel, the first (63, 0, 0); 63 of ..."
[[noreturn]] void ThrowStuck(const std::string& what) {
  std::map<std::string, std::vector<const Thread*>> groups;
  for (const Thread& thread : threads) groups[Describe(thread)].push_back(&thread);
  std::string text = what + " in block " + Text(blockIdx) + ':';
  for (const auto& [description, members] : groups) {
    text += ' ' + std::to_string(members.size()) + " of " + std::to_string(threads.size()) +
            " threads: " + description + ", the first is " + Text(members.front()->index) + ';';
  }
  text.back() = '.';
  throw Misuse(text);
}

// The threads of the warp of `thread` that take part in its exchange; none until all threads of its
// mask have arrived.
std::vector<Thread*> Participants(const Thread& thread) {
  const std::size_t first = (&thread - threads.data()) / kWarpSize * kWarpSize;
  std::vector<Thread*> participants;
  for (std::size_t i = first; i < std::min(first + kWarpSize, threads.size()); ++i) {
    Thread& other = threads[i];
    if (!(thread.mask >> (i - first) & 1) || other.state == Thread::State::kDone) continue;
    if (other.state != Thread::State::kInWarp || other.mask != thread.mask ||
        other.place.line != thread.place.line || other.place.what != thread.place.what) {
      return {};
    }
    participants.push_back(&other);
  }
  return participants;
}

// Resumes the threads that have met at the exchange of `thread`.
bool ReleaseExchange(const Thread& thread) {
  const std::vector<Thread*> participants = Participants(thread);
  for (Thread* receiver : participants) {
    const auto is_source = [&](const Thread* t) {
      return (t - threads.data()) % kWarpSize == receiver->source;
    };
    const auto source = std::find_if(participants.begin(), participants.end(), is_source);
    if (source == participants.end()) {
      ThrowStuck("lane " + std::to_string(receiver->source) + ", which thread " +
                 Text(receiver->index) + " reads, takes no part in the exchange,");
    }
    receiver->received = (*source)->sent;
  }
  for (Thread* participant : participants) participant->state = Thread::State::kReady;
  return !participants.empty();
}

std::vector<unsigned> Order(unsigned count) {
  std::vector<unsigned> result(count);
  std::iota(result.begin(), result.end(), 0);
  if (is_shuffled) std::shuffle(result.begin(), result.end(), random_order);
  return result;
}

// Runs the warp as far as it gets without the other warps: a warp may be that fast.
void RunWarp(std::size_t first, std::size_t size) {
  bool goes_on = true;
  while (goes_on) {
    for (unsigned lane : Order(size)) {
      Thread& thread = threads[first + lane];
      if (thread.state == Thread::State::kReady) Resume(thread);
    }
    goes_on = false;
    for (std::size_t i = first; i < first + size; ++i) {
      if (threads[i].state == Thread::State::kInWarp) goes_on |= ReleaseExchange(threads[i]);
    }
  }
}

// Resumes the threads, which must be at one barrier; false if all have left the kernel.
bool ReleaseBarrier() {
  const auto has_left = [](const Thread& t) { return t.state == Thread::State::kDone; };
  if (std::all_of(threads.begin(), threads.end(), has_left)) return false;
  for (Thread& thread : threads) {
    if (thread.state != Thread::State::kAtBarrier ||
        thread.place.line != threads.front().place.line) {
      ThrowStuck("threads wait for each other");
    }
  }
  for (Thread& thread : threads) thread.state = Thread::State::kReady;
  return true;
}

uint3 At(unsigned linear, const Index& size) {
  return {linear % size.x, linear / size.x % size.y, linear / size.x / size.y};
}

// Shared memory starts as NaNs, since on a GPU it is uninitialized. Not by memset, which
// AddressSanitizer checks for writes between variables.
__attribute__((no_sanitize_address)) void SpoilShared() {
  for (char* p = __start_emulated_shared; p != __stop_emulated_shared; ++p) *p = '\xff';
  std::fill(dynamic_shared.begin(), dynamic_shared.end(), ~std::uint64_t{0});
}

void RunBlock(const Index& block) {
  SpoilShared();
  const unsigned count = block.x * block.y * block.z;
  threads.assign(count, {});
  for (unsigned i = 0; i < count; ++i) threads[i].index = At(i, block);
  do {
    for (unsigned warp : Order((count + kWarpSize - 1) / kWarpSize)) {
      const unsigned first = warp * kWarpSize;
      RunWarp(first, std::min(count - first, unsigned{kWarpSize}));
    }
  } while (ReleaseBarrier());
}

std::size_t SharedLimit(const void* kernel) {
  const auto found = shared_limits.find(kernel);
  return found == shared_limits.end() ? kDefaultSharedLimit : found->second;
}

// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications
bool IsValid(const Launch& launch) {
  const auto& [grid, block] = std::tie(launch.grid, launch.block);
  const std::uint64_t block_size = std::uint64_t{block.x} * block.y * block.z;
  return 0 < grid.x && grid.x <= 0x7FFFFFFF && 0 < grid.y && grid.y <= 0xFFFF && 0 < grid.z &&
         grid.z <= 0xFFFF && 0 < block_size && block.x <= 1024 && block.y <= 1024 &&
         block.z <= 64 && block_size <= 1024 && launch.shared_bytes <= SharedLimit(launch.kernel);
}

}  // namespace

void SetOrder(unsigned seed) {
  is_shuffled = seed != 0;
  random_order.seed(seed);
}

void Record(const Launch& launch) { launches.push_back(launch); }

std::vector<Launch> TakeLaunches() { return std::exchange(launches, {}); }

void RecordRuntimeCall(const char* name) { runtime_calls.emplace_back(name); }

std::vector<std::string> TakeRuntimeCalls() { return std::exchange(runtime_calls, {}); }

bool SetSharedLimit(const void* kernel, std::size_t bytes) {
  if (bytes > kLargestSharedLimit) return false;
  shared_limits[kernel] = bytes;
  return true;
}

void* DynamicShared() { return dynamic_shared.data(); }

bool Run(const Launch& launch, const std::function<void()>& body) {
  if (!IsValid(launch)) return false;
  Record(launch);
  kernel = &body;
  dynamic_shared.assign((launch.shared_bytes + 7) / 8, 0);
  dynamic_shared.shrink_to_fit();
  gridDim = {launch.grid.x, launch.grid.y, launch.grid.z};
  blockDim = {launch.block.x, launch.block.y, launch.block.z};
  try {
    for (unsigned i : Order(launch.grid.x * launch.grid.y * launch.grid.z)) {
      blockIdx = At(i, launch.grid);
      RunBlock(launch.block);
    }
  } catch (const Misuse&) {
    fibers.clear();  // some are in the middle of the kernel
    idle.clear();
    throw;
  }
  return true;
}

void WaitForBlock(const Place& place) { Wait(Thread::State::kAtBarrier, place); }

unsigned Lane() { return (current - threads.data()) % kWarpSize; }

std::uint64_t Exchange(const Place& place, unsigned mask, std::uint64_t value, unsigned source) {
  Thread& thread = *current;
  thread.mask = mask | 1u << Lane();
  thread.sent = value;
  thread.source = source;
  Wait(Thread::State::kInWarp, place);
  return thread.received;
}

}  // namespace emulator
