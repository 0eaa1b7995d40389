#include "cpu/cache.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cache.h"
#include "core/indices.h"
#include "cpu/copy.h"
#include "cpu/parallel.h"

namespace infini::ops::cpu {
namespace {

std::vector<std::int64_t> SlotsOf(const char* name, const Tensor& mapping, std::int64_t blocks,
                                  std::int64_t block_size) {
  std::vector<std::int64_t> slots(static_cast<std::size_t>(mapping.shape()[0]));
  const Indices indices(mapping);
  for (std::size_t token = 0; token < slots.size(); ++token) {
    const std::int64_t slot = indices(static_cast<std::int64_t>(token));
    slots[token] = slot;
    if (slot < blocks * block_size) continue;
    throw std::invalid_argument(
        std::string(name) + ": slot_mapping[" + std::to_string(token) + "]: got slot " +
        std::to_string(slot) + ", expected one below " + std::to_string(blocks * block_size) +
        ", because the caches have " + std::to_string(blocks) + " blocks of " +
        std::to_string(block_size) + " slots; a negative slot skips its token");
  }
  return slots;
}

// Copies tokens into one of the caches.
class TokenCopier {
 public:
  TokenCopier(const Tensor& tokens, const Tensor& cache, std::size_t slots)
      : copy_(CacheCopyOf(tokens, cache, slots)) {
    Geometry<2>& token = copy_.token;
    auto size = static_cast<std::int64_t>(DataTypeSize(cache.data_type()));
    bool is_contiguous =
        token.rank > 0 && token.strides[0][0] == size && token.strides[1][0] == size;
    // The last dimension of a paged key_cache: too few bytes for a call each.
    if (is_contiguous && token.rank > 1 && token.sizes[0] * size == 16) {
      token.RemoveDimension(0);
      size = 16;
      is_contiguous = false;
    }
    while (token.rank < 3) token.AddDimension(1);
    if (is_contiguous) {
      row_bytes_ = static_cast<std::size_t>(token.sizes[0] * size);
      return;
    }
    copy_elements_ = CopyOf(size);
    batch_ = kMostTokens;
    part_ = kPart;
  }

  // Copies the tokens that `is_included`, in their order.
  template <typename Function>
  void CopyTokens(const std::vector<std::int64_t>& slots, const Function& is_included) const {
    std::array<Move, kMostTokens> moves;
    std::size_t count = 0;
    for (std::size_t token = 0; token < slots.size(); ++token) {
      const std::int64_t slot = slots[token];
      if (!is_included(slot)) continue;
      moves[count++] = {
          copy_.token.data[0] + slot / copy_.block_size * copy_.block_stride +
              slot % copy_.block_size * copy_.slot_stride,
          copy_.token.data[1] + static_cast<std::int64_t>(token) * copy_.token_stride};
      if (count < batch_) continue;
      Copy(moves.data(), count);
      count = 0;
    }
    Copy(moves.data(), count);
  }

 private:
  // One token.
  struct Move {
    char* to;
    const char* from;
  };

  // Elements of consecutive slots lie side by side, each beside none of its own token. All tokens
  // of a block write a part of their elements, which stays in the first-level cache, before the
  // next part.
  static constexpr std::size_t kMostTokens = 32;
  static constexpr std::int64_t kPart = 64;

  void Copy(const Move* moves, std::size_t count) const {
    const Geometry<2>& token = copy_.token;
    for (std::int64_t i = 0; i < token.sizes[2]; ++i) {
      for (std::int64_t j = 0; j < token.sizes[1]; ++j) {
        for (std::int64_t begin = 0; begin < token.sizes[0]; begin += part_) {
          const std::int64_t elements = std::min(token.sizes[0] - begin, part_);
          const auto offset = [&](int operand) {
            const std::int64_t* const strides = token.strides[operand];
            return i * strides[2] + j * strides[1] + begin * strides[0];
          };
          for (std::size_t k = 0; k < count; ++k) {
            CopyRow(moves[k].from + offset(1), moves[k].to + offset(0), elements);
          }
        }
      }
    }
  }

  void CopyRow(const char* from, char* to, std::int64_t count) const {
    if (copy_elements_) {
      const auto& strides = copy_.token.strides;
      copy_elements_(from, strides[1][0], to, strides[0][0], count);
    } else {
      std::memcpy(to, from, row_bytes_);
    }
  }

  CacheCopy copy_;
  cpu::Copy copy_elements_ = nullptr;  // if the rows are not contiguous
  std::size_t row_bytes_ = 0;          // if they are
  std::size_t batch_ = 1;              // tokens that are copied together
  std::int64_t part_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

void ReshapeAndCache(const char* name, const Tensor& key, const Tensor& value,
                     const Tensor& slot_mapping, const Tensor& key_cache,
                     const Tensor& value_cache) {
  const std::size_t dimension = SlotDimension(key_cache);
  const std::vector<std::int64_t> slots =
      SlotsOf(name, slot_mapping, key_cache.shape()[0], key_cache.shape()[dimension]);
  if (slots.empty()) return;
  const TokenCopier copiers[] = {{key, key_cache, dimension}, {value, value_cache, dimension}};
  // Each thread copies the tokens whose slots have one of its remainders, in their order: of two
  // tokens with the same slot the last one is kept, with any number of threads.
  std::int64_t remainders = 1;
  while (remainders < slot_mapping.shape()[0]) remainders *= 2;
  const std::int64_t elements = 2 * key.shape()[1] * key.shape()[2];
  ParallelFor(remainders, kElementsPerThread / (elements + 1) + 1,
              [&](std::int64_t begin, std::int64_t end) {
                const auto is_included = [&](std::int64_t slot) {
                  const std::int64_t remainder = slot & (remainders - 1);
                  return slot >= 0 && begin <= remainder && remainder < end;
                };
                for (const TokenCopier& copier : copiers) copier.CopyTokens(slots, is_included);
              });
}

}  // namespace infini::ops::cpu
