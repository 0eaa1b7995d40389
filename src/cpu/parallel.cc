#include "cpu/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#ifdef INFINI_OPS_WITH_TORCH
#include "torch/foreign.h"
#endif

namespace infini::ops::cpu {
namespace {

using Function = FunctionRef<void(std::int64_t, std::int64_t)>;

// More pieces than threads: a thread that wakes late, or shares its core, then takes fewer pieces.
constexpr std::int64_t kPiecesPerThread = 4;

// How long a thread waits actively for work, or for the end of a job, before it sleeps. It is the
// time needed to wake a thread (30 to 60 us on a virtual machine), so that consecutive calls need
// not wake any.
constexpr std::chrono::microseconds kSpin{50};

thread_local bool is_inside = false;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <typename Condition>
void SpinUntil(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (!condition() && std::chrono::steady_clock::now() < end) Relax();
}

// One call of ParallelFor, on the stack of its caller.
class Job {
 public:
  Job(Function function, std::int64_t count, std::int64_t pieces, int invitations)
      : invitations(invitations), function_(function), count_(count), pieces_(pieces) {}

  // Takes pieces until there are no more.
  void Work() {
    is_inside = true;
    for (std::int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < pieces_;) {
      try {
        function_(Begin(i), Begin(i + 1));
      } catch (...) {
        next_.store(pieces_, std::memory_order_relaxed);
        if (!failed_.test_and_set()) error_ = std::current_exception();
      }
    }
    is_inside = false;
  }

  void RethrowError() const {
    if (error_) std::rethrow_exception(error_);
  }

  // Protected by the pool's lock, except that the caller reads `helpers` while it spins.
  int invitations;
  std::atomic<int> helpers{0};

 private:
  // The first `count_ % pieces_` pieces have one more element.
  std::int64_t Begin(std::int64_t piece) const {
    return piece * (count_ / pieces_) + std::min(piece, count_ % pieces_);
  }

  const Function function_;
  const std::int64_t count_;
  const std::int64_t pieces_;
  std::atomic<std::int64_t> next_{0};
  std::atomic_flag failed_ = ATOMIC_FLAG_INIT;
  std::exception_ptr error_;
};

// Threads that help callers. A caller invites them but does not wait for them to come: it does the
// remaining work itself. Therefore the pool also works, more slowly, if no threads can be created.
class Pool {
 public:
  void Run(Job* job) {
    Invite(job);
    job->Work();
    const auto nobody_helps = [&] { return job->helpers.load() == 0; };
    {
      const std::lock_guard lock(mutex_);
      Uninvite(job);
    }
    SpinUntil(nobody_helps);
    // Also lock here if there are no helpers: the last helper holds the lock until it has left the
    // job.
    std::unique_lock lock(mutex_);
    done_.wait(lock, nobody_helps);
  }

 private:
  void Invite(Job* job) {
    const int invitations = job->invitations;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(job);
      invitations_ += invitations;
      while (threads_ < invitations && Start()) ++threads_;
    }
    // Makes system calls only for sleeping threads.
    for (int i = 0; i < invitations; ++i) wake_.notify_one();
  }

  // Removes a job from the list, without changing the order of the others.
  void Uninvite(Job* job) {
    invitations_ -= job->invitations;
    job->invitations = 0;
    jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), job), jobs_.end());
  }

  bool Start() {
    try {
      std::thread([this] { Help(); }).detach();
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }

  [[noreturn]] void Help() {
    const auto is_invited = [&] { return invitations_.load() > 0; };
    while (true) {
      SpinUntil(is_invited);
      Job* job;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, is_invited);
        job = Accept();
      }
      job->Work();
      const std::lock_guard lock(mutex_);
      if (--job->helpers == 0) done_.notify_all();
    }
  }

  // The oldest job. It stays in the list until it has no invitations left.
  Job* Accept() {
    Job* job = jobs_.front();
    ++job->helpers;
    --invitations_;
    if (--job->invitations == 0) jobs_.erase(jobs_.begin());
    return job;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<Job*> jobs_;  // jobs with invitations
  std::atomic<int> invitations_{0};
  int threads_ = 0;
};

// Never destroyed: its threads use it until the process ends.
Pool* pool = nullptr;

Pool& ThePool() {
  static const bool initialized = [] {
    pool = new Pool;
    // The child of a fork has none of the threads, and one of them may have held the lock.
    pthread_atfork(nullptr, nullptr, [] {
      pool = new Pool;
      is_inside = false;
    });
    return true;
  }();
  static_cast<void>(initialized);
  return *pool;
}

#ifdef INFINI_OPS_WITH_TORCH

// True in the child of a fork, which has none of torch's threads.
bool is_forked = false;
const bool detects_forks = pthread_atfork(nullptr, nullptr, [] { is_forked = true; }) == 0;

// Counts what threads hand over to each other. ThreadSanitizer does not see how the threads of
// another library wait, but it does see this.
std::atomic<int> handed_over{0};

// Torch's threads spin after their work, like ours: with two pools, each would keep the other's
// threads from the cores. Returns false if torch has no threads that can be used here.
bool RunOnTorch(Job* job) {
  if (is_forked || !detects_forks) return false;
  const auto help = [](void* data) {
    ++handed_over;
    static_cast<Job*>(data)->Work();
    ++handed_over;
  };
  ++handed_over;
  const bool has_run = torch_backend::RunOnAllThreads(help, job);
  ++handed_over;
  return has_run;
}

#else

int CpuCount() {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) return CPU_COUNT(&cpus);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

bool RunOnTorch(Job*) { return false; }

#endif

}  // namespace

int ThreadCount() {
#ifdef INFINI_OPS_WITH_TORCH
  return torch_backend::ThreadCount();
#else
  static const int count = CpuCount();
  return count;
#endif
}

void ParallelFor(std::int64_t count, std::int64_t grain, Function function) {
  if (count <= 0) return;
  const std::int64_t most = count / std::max<std::int64_t>(grain, 1);
  const std::int64_t threads =
      most <= 1 || is_inside ? 1 : std::min<std::int64_t>(most, ThreadCount());
  if (threads <= 1) return function(0, count);
  Job job(function, count, std::min(most, threads * kPiecesPerThread),
          static_cast<int>(threads) - 1);
  if (!RunOnTorch(&job)) ThePool().Run(&job);
  job.RethrowError();
}

}  // namespace infini::ops::cpu
