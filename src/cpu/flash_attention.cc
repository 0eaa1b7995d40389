#include "cpu/flash_attention.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/attention.h"

namespace infini::ops::cpu {
namespace {

std::string At(const char* name, std::int64_t i) { return name + ('[' + std::to_string(i)) + ']'; }

std::string Range(std::int64_t first, std::int64_t last) {
  return std::to_string(first) + " to " + std::to_string(last);
}

// Reads the sequences of a call from its index tensors, and checks them.
class SequenceReader {
 public:
  SequenceReader(const FlashNames& names, const FlashAttention& attention,
                 std::int64_t most_queries, std::int64_t most_keys)
      : names_(names), attention_(attention), most_queries_(most_queries), most_keys_(most_keys) {}

  std::vector<AttentionSequence> Read() const {
    std::vector<AttentionSequence> sequences(static_cast<std::size_t>(attention_.sequences));
    for (std::int64_t i = 0; i < attention_.sequences; ++i) {
      AttentionSequence& sequence = sequences[static_cast<std::size_t>(i)];
      sequence = {i, 0, attention_.query_rows, 0, attention_.key_rows};
      ReadQueries(i, &sequence);
      ReadKeys(i, &sequence);
      CheckPages(i, sequence.keys);
    }
    return sequences;
  }

 private:
  [[noreturn]] void Throw(const std::string& place, const std::string& got,
                          const std::string& expected, const std::string& reason) const {
    throw std::invalid_argument(names_.operator_name + (": " + place) + ": got " + got +
                                ", expected " + expected + ": " + reason);
  }

  void ReadQueries(std::int64_t i, AttentionSequence* sequence) const {
    if (!attention_.query_ends.defined()) return;
    ReadEnds("cu_seqlens_q", attention_.query_ends, i, attention_.query_rows,
             &sequence->first_query, &sequence->queries);
    CheckLength("cu_seqlens_q", i + 1, sequence->queries, "max_seqlen_q", most_queries_);
  }

  void ReadKeys(std::int64_t i, AttentionSequence* sequence) const {
    const bool is_paged = attention_.pages.defined();
    if (attention_.key_ends.defined()) {
      // The rows of pages are not those of a tensor.
      ReadEnds("cu_seqlens_k", attention_.key_ends, i,
               is_paged ? AttentionHead::kUnlimited : attention_.key_rows, &sequence->first_key,
               &sequence->keys);
      if (is_paged) sequence->first_key = 0;
    }
    if (attention_.key_counts.defined()) {
      const std::int64_t count = attention_.key_counts(i);
      const std::int64_t most = is_paged ? attention_.key_rows : sequence->keys;
      if (count < 0 || count > most) {
        Throw(At(names_.key_counts, i), std::to_string(count), Range(0, most),
              "the keys that the sequence has");
      }
      sequence->keys = count;
    }
    if (sequence->keys > attention_.key_rows) {
      Throw(At("cu_seqlens_k", i + 1), std::to_string(sequence->keys),
            Range(0, attention_.key_rows), "the keys that a row of block_table holds");
    }
    const bool has_count = attention_.key_counts.defined();
    CheckLength(has_count ? names_.key_counts : "cu_seqlens_k", has_count ? i : i + 1,
                sequence->keys, "max_seqlen_k", most_keys_);
  }

  void ReadEnds(const char* name, const Indices& ends, std::int64_t i, std::int64_t rows,
                std::int64_t* first, std::int64_t* count) const {
    const std::int64_t begin = ends(i);
    const std::int64_t end = ends(i + 1);
    if (begin < 0 || begin > rows) {
      Throw(At(name, i), std::to_string(begin), Range(0, rows), "the rows of the sequences");
    }
    if (end < begin || end > rows) {
      Throw(At(name, i + 1), std::to_string(end), Range(begin, rows),
            "the end of a sequence is not before its begin");
    }
    *first = begin;
    *count = end - begin;
  }

  void CheckLength(const char* name, std::int64_t i, std::int64_t length, const char* limit_name,
                   std::int64_t limit) const {
    if (length <= limit) return;
    Throw(At(name, i), "a sequence of " + std::to_string(length),
          "at most " + std::to_string(limit),
          std::string("pass the length of the longest sequence as ") + limit_name);
  }

  void CheckPages(std::int64_t i, std::int64_t keys) const {
    if (!attention_.pages.defined()) return;
    const Indices pages = attention_.pages.Row(i);
    for (std::int64_t j = 0; j * attention_.first.page_size < keys; ++j) {
      const std::int64_t page = pages(j);
      if (page >= 0 && page < attention_.page_count) continue;
      Throw("block_table[" + std::to_string(i) + ", " + std::to_string(j) + "]",
            std::to_string(page), Range(0, attention_.page_count - 1),
            "the caches have " + std::to_string(attention_.page_count) +
                " blocks; entries behind the last key are not read");
    }
  }

  const FlashNames& names_;
  const FlashAttention& attention_;
  std::int64_t most_queries_;
  std::int64_t most_keys_;
};

}  // namespace

void FlashAttend(const FlashNames& names, const FlashAttention& attention,
                 std::int64_t most_queries, std::int64_t most_keys) {
  const std::vector<AttentionSequence> sequences =
      SequenceReader(names, attention, most_queries, most_keys).Read();
  if (attention.first.heads == 0) return;
  Attend(attention.sequences, attention.key_heads, [&](std::int64_t sequence, std::int64_t head) {
    return attention.At(sequences[static_cast<std::size_t>(sequence)], head);
  });
}

}  // namespace infini::ops::cpu
