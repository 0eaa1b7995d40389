#include "memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

namespace simulated {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kBytesPerDevice = size_t{4} << 30;  // of address space; pages are allocated on use
constexpr size_t kBytes = kDeviceCount * kBytesPerDevice;
constexpr size_t kAlignment = 512;                  // as on a GPU
constexpr size_t kReturnedBytes = size_t{1} << 20;  // larger freed blocks return their pages
constexpr auto kAllPools = static_cast<size_t>(StatType::AGGREGATE);

// Both halves of one mapping: the addresses that tensors have, and the memory behind them.
char* Addresses() {
  static char* const addresses = [] {
    void* const mapping =
        mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(mapping != MAP_FAILED, "the simulated device can't reserve ", 2 * kBytes,
                " bytes of address space: ", std::strerror(errno));
    char* const first = static_cast<char*>(mapping);
    TORCH_CHECK(mprotect(first + kBytes, kBytes, PROT_READ | PROT_WRITE) == 0,
                "the simulated device can't use its memory: ", std::strerror(errno));
    return first;
  }();
  return addresses;
}

// Returns whole pages of freed memory to the system, so that a program's peak is its own.
void ReturnPages(char* address, size_t size) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(Reach(address));
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + size) / page * page;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

// The memory of one device: first fit, with neighbouring free blocks joined.
class Arena {
 public:
  explicit Arena(c10::DeviceIndex device)
      : device_(device), free_{{Addresses() + device * kBytesPerDevice, kBytesPerDevice}} {}

  void* Allocate(size_t bytes) {
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto block = std::find_if(free_.begin(), free_.end(), [size](const auto& candidate) {
      return candidate.second >= size;
    });
    // Rounding up may have wrapped around.
    if (size < bytes || block == free_.end()) ThrowOutOfMemory(bytes);
    const auto [address, available] = *block;
    free_.erase(block);
    if (available > size) free_.emplace(address + size, available - size);
    used_.emplace(address, size);
    ForEachStat(size, [](Stat& stat, size_t amount) { stat.increase(amount); });
    return address;
  }

  void Free(void* pointer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto used = used_.find(static_cast<char*>(pointer));
    if (used == used_.end()) std::abort();  // freed twice: a deleter can't throw
    auto [address, size] = *used;
    used_.erase(used);
    ForEachStat(size, [](Stat& stat, size_t amount) { stat.decrease(amount); });
    if (size >= kReturnedBytes) ReturnPages(address, size);
    auto next = free_.lower_bound(address);
    if (next != free_.end() && address + size == next->first) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == address) {
      std::prev(next)->second += size;
    } else {
      free_.emplace(address, size);
    }
  }

  DeviceStats Stats() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }

  void ResetAccumulatedStats() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ForEachStat(0, [](Stat& stat, size_t) { stat.reset_accumulated(); });
    stats_.num_ooms = 0;
  }

  void ResetPeakStats() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ForEachStat(0, [](Stat& stat, size_t) { stat.reset_peak(); });
  }

 private:
  // The numbers of blocks, and their bytes. The device keeps no unused memory, so what is allocated
  // is what is reserved.
  template <typename Apply>
  void ForEachStat(size_t size, Apply apply) {
    for (auto* blocks : {&stats_.allocation, &stats_.segment, &stats_.active}) {
      apply((*blocks)[kAllPools], 1);
    }
    for (auto* bytes : {&stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes}) {
      apply((*bytes)[kAllPools], size);
    }
  }

  [[noreturn]] void ThrowOutOfMemory(size_t bytes) {
    ++stats_.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, false, c10::DeviceTypeName(c10::kPrivateUse1, true),
                     " out of memory. Tried to allocate ", bytes, " bytes on device ",
                     static_cast<int>(device_), ", which is simulated and has ", kBytesPerDevice,
                     " bytes, of which ", stats_.allocated_bytes[kAllPools].current,
                     " are allocated.");
  }

  const c10::DeviceIndex device_;
  std::mutex mutex_;
  std::map<char*, size_t> free_;
  std::map<char*, size_t> used_;
  DeviceStats stats_;
};

// Never destroyed: tensors may outlive everything else in a process.
Arena& ArenaOf(c10::DeviceIndex device) {
  static Arena* const arenas[kDeviceCount] = {new Arena(0), new Arena(1)};
  TORCH_CHECK(device >= 0 && device < kDeviceCount, "there is no simulated device ",
              static_cast<int>(device), "; there are ", static_cast<int>(kDeviceCount));
  return *arenas[device];
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device = c10::impl::getDeviceGuardImpl(c10::kPrivateUse1)->getDevice();
    void* const address = bytes ? ArenaOf(device.index()).Allocate(bytes) : nullptr;
    return {address, address, &Free, device};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(Reach(to), Reach(const_cast<void*>(from)), bytes);
  }

  // The rest is for the functions of torch.accelerator about memory.
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  // All work is done when a kernel returns. A device that computes later must not reuse the memory
  // before the stream has finished its work.
  void recordStream(const c10::DataPtr& /*memory*/, c10::Stream /*stream*/) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex device) override { return ArenaOf(device).Stats(); }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    ArenaOf(device).ResetAccumulatedStats();
  }
  void resetPeakStats(c10::DeviceIndex device) override { ArenaOf(device).ResetPeakStats(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto allocated = ArenaOf(device).Stats().allocated_bytes[kAllPools].current;
    return {kBytesPerDevice - static_cast<size_t>(allocated), kBytesPerDevice};
  }

 private:
  static void Free(void* address) {
    if (address) ArenaOf(DeviceOf(address).index()).Free(address);
  }
};

// Where pinned memory begins, and its size.
class PinnedBlocks {
 public:
  void Add(const void* address, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[static_cast<const char*>(address)] = bytes;
  }
  void Remove(const void* address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.erase(static_cast<const char*>(address));
  }
  bool Contain(const void* pointer) {
    const char* const address = static_cast<const char*>(pointer);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto after = blocks_.upper_bound(address);
    return after != blocks_.begin() && address < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
};

PinnedBlocks& Pinned() {
  static PinnedBlocks* const blocks = new PinnedBlocks;
  return *blocks;
}

struct HostAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* const address = c10::GetCPUAllocator()->raw_allocate(bytes);
    if (address) Pinned().Add(address, bytes);
    return {address, address, &Free, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  // All work is done when a kernel returns.
  bool record_event(void* address, void* /*context*/, c10::Stream /*stream*/) override {
    return IsPinned(address);
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }  // not one of those of torch.accelerator
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  static void Free(void* address) {
    Pinned().Remove(address);
    c10::GetCPUAllocator()->raw_deallocate(address);
  }
};

}  // namespace

void* Reach(void* device_address) {
  return device_address ? static_cast<char*>(device_address) + kBytes : nullptr;
}

c10::Device DeviceOf(const void* address) {
  const auto offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(Addresses());
  TORCH_CHECK(offset < kBytes, address, " is not memory of a simulated device");
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(offset / kBytesPerDevice)};
}

c10::Allocator& DeviceAllocator() {
  static Allocator* const allocator = new Allocator;
  return *allocator;
}

at::HostAllocator& PinnedAllocator() {
  static HostAllocator* const allocator = new HostAllocator;
  return *allocator;
}

bool IsPinned(const void* address) { return Pinned().Contain(address); }

}  // namespace simulated
