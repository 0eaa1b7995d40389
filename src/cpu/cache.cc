#include "cpu/cache.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cache.h"
#include "cpu/copy.h"
#include "cpu/parallel.h"

namespace infini::ops::cpu {
namespace {

std::int64_t IndexAt(const Tensor& indices, std::int64_t i) {
  i *= indices.strides()[0];
  return indices.data_type() == DataType::kInt32 ? indices.data<std::int32_t>()[i]
                                                 : indices.data<std::int64_t>()[i];
}

std::vector<std::int64_t> SlotsOf(const char* name, const Tensor& mapping, std::int64_t blocks,
                                  std::int64_t block_size) {
  std::vector<std::int64_t> slots(static_cast<std::size_t>(mapping.shape()[0]));
  for (std::size_t token = 0; token < slots.size(); ++token) {
    const std::int64_t slot = IndexAt(mapping, static_cast<std::int64_t>(token));
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
      row_bytes_ = token.sizes[0] * size;
    } else {
      copy_elements_ = CopyOf(size);
    }
  }

  void Copy(std::int64_t index, std::int64_t slot) const {
    const Geometry<2>& token = copy_.token;
    char* const to = token.data[0] + slot / copy_.block_size * copy_.block_stride +
                     slot % copy_.block_size * copy_.slot_stride;
    const char* const from = token.data[1] + index * copy_.token_stride;
    for (std::int64_t i = 0; i < token.sizes[2]; ++i) {
      for (std::int64_t j = 0; j < token.sizes[1]; ++j) {
        CopyRow(from + i * token.strides[1][2] + j * token.strides[1][1],
                to + i * token.strides[0][2] + j * token.strides[0][1]);
      }
    }
  }

 private:
  void CopyRow(const char* from, char* to) const {
    const Geometry<2>& token = copy_.token;
    if (copy_elements_) {
      copy_elements_(from, token.strides[1][0], to, token.strides[0][0], token.sizes[0]);
    } else {
      CopyBytes(from, to, row_bytes_);
    }
  }

  CacheCopy copy_;
  cpu::Copy copy_elements_ = nullptr;  // if the rows are not contiguous
  std::int64_t row_bytes_ = 0;
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
                for (const TokenCopier& copier : copiers) {
                  for (std::size_t token = 0; token < slots.size(); ++token) {
                    const std::int64_t slot = slots[token];
                    const std::int64_t remainder = slot & (remainders - 1);
                    if (slot < 0 || remainder < begin || remainder >= end) continue;
                    copier.Copy(static_cast<std::int64_t>(token), slot);
                  }
                }
              });
}

}  // namespace infini::ops::cpu
