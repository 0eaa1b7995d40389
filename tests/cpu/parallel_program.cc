// The checks of test_parallel.py, by name. A failed check prints its place and exits with 1.

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/parallel.h"

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (false)

using infini::ops::cpu::ParallelFor;
using infini::ops::cpu::ThreadCount;

namespace {

// Each index exactly once, in pieces of at least `grain`.
void CheckCoverage(std::int64_t count, std::int64_t grain) {
  std::vector<std::atomic<int>> visits(count);
  ParallelFor(count, grain, [&](std::int64_t begin, std::int64_t end) {
    CHECK(0 <= begin && begin < end && end <= count);
    CHECK(end - begin >= std::min(count, grain));
    for (std::int64_t i = begin; i < end; ++i) ++visits[i];
  });
  for (const auto& visited : visits) CHECK(visited == 1);
}

void Coverage() {
  for (std::int64_t count : {0, 1, 2, 3, 7, 8, 9, 100, 1000, 4097}) {
    for (std::int64_t grain : {0, 1, 2, 3, 7, 64, 999, 5000}) CheckCoverage(count, grain);
  }
}

// Each thread waits in its first piece until there is a second one.
void SeveralThreads() {
  if (ThreadCount() == 1) return;
  std::atomic<int> present{0};
  thread_local bool is_here = false;
  ParallelFor(1000, 1, [&](std::int64_t, std::int64_t) {
    if (!std::exchange(is_here, true)) ++present;
    while (present < 2) std::this_thread::yield();
  });
  CHECK(present >= 2);
}

void OneCpu() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(sched_getcpu(), &cpus);
  CHECK(sched_setaffinity(0, sizeof(cpus), &cpus) == 0);
  CHECK(ThreadCount() == 1);
  int calls = 0;
  ParallelFor(1000, 1, [&](std::int64_t begin, std::int64_t end) {
    CHECK(begin == 0 && end == 1000);
    ++calls;
  });
  CHECK(calls == 1);
}

void Nested() {
  std::atomic<int> calls{0};
  ParallelFor(64, 1, [&](std::int64_t, std::int64_t) {
    const auto outer = std::this_thread::get_id();
    ParallelFor(100, 1, [&](std::int64_t begin, std::int64_t end) {
      CHECK(std::this_thread::get_id() == outer && begin == 0 && end == 100);
      ++calls;
    });
  });
  CHECK(calls >= 1);
}

void Exceptions() {
  for (std::int64_t at = 0; at < 100; ++at) {
    std::string message;
    try {
      ParallelFor(100, 1, [&](std::int64_t begin, std::int64_t end) {
        if (begin <= at && at < end) throw std::runtime_error("at " + std::to_string(at));
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    CHECK(message == "at " + std::to_string(at));
    CheckCoverage(100, 1);
  }
}

void Callers() {
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([] {
      for (int round = 0; round < 300; ++round) CheckCoverage(1000, 1);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// The child has none of the threads; other callers run during the fork.
void Fork() {
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) CheckCoverage(1000, 1);
  });
  for (int i = 0; i < 20; ++i) {
    CheckCoverage(1000, 1);
    const pid_t child = fork();
    if (child == 0) {
      SeveralThreads();
      CheckCoverage(1000, 1);
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  is_over = true;
  other.join();
}

// Ends the process while others call.
void Exit() {
  for (int i = 0; i < 4; ++i) {
    std::thread([] {
      while (true) ParallelFor(1000, 1, [](std::int64_t, std::int64_t) {});
    }).detach();
  }
  CheckCoverage(1000, 1);
  std::exit(0);
}

// Prints the nanoseconds of a call without work: in a row, and after the threads fell asleep.
void Latency() {
  using Clock = std::chrono::steady_clock;
  for (const bool sleeps : {false, true}) {
    std::vector<double> times;
    for (int i = 0; i < 1000; ++i) {
      if (sleeps) std::this_thread::sleep_for(std::chrono::microseconds(500));
      const auto start = Clock::now();
      ParallelFor(1000, 1, [](std::int64_t, std::int64_t) {});
      times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    std::printf("%s: median %.0f ns, 95 %% %.0f ns\n", sleeps ? "asleep" : "in a row", times[500],
                times[950]);
  }
}

const std::map<std::string, void (*)()> kChecks = {
    {"callers", Callers}, {"coverage", Coverage}, {"exceptions", Exceptions},
    {"exit", Exit},       {"fork", Fork},         {"latency", Latency},
    {"nested", Nested},   {"one_cpu", OneCpu},    {"several_threads", SeveralThreads},
};

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2 && kChecks.count(arguments[1]));
  kChecks.at(arguments[1])();
}
