#ifndef INFINI_OPS_SPAN_H_
#define INFINI_OPS_SPAN_H_

#include <array>
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace infini::ops {

// A borrowed, read-only array: to be replaced by `std::span<const T>` when every vendor's compiler
// supports C++20.
template <typename T>
class Span {
 public:
  constexpr Span() = default;
  // A template, so that `{0, 1}` is always a list and never a null pointer with a size.
  template <typename U, std::enable_if_t<std::is_same_v<U, T>, int> = 0>
  constexpr Span(const U* data, std::size_t size) : data_(data), size_(size) {}
  // The list lives until the end of the full expression, and therefore during the call.
  constexpr Span(std::initializer_list<T> values) : Span(values.begin(), values.size()) {}
  template <std::size_t size>
  constexpr Span(const std::array<T, size>& values) : Span(values.data(), size) {}
  Span(const std::vector<T>& values) : Span(values.data(), values.size()) {}

  constexpr const T* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace infini::ops

#endif  // INFINI_OPS_SPAN_H_
