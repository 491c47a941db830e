// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/comm/ordered_sum.h"

#include <algorithm>
#include <array>

#include "skein/core/error.h"

namespace skein::comm {
namespace {

// Small enough to stay in the first-level cache while the pieces stream past.
constexpr int64_t kBlock = 1024;

template <typename T, typename Accumulator>
void sum_pieces(void* out, const std::vector<const void*>& pieces, int64_t count) {
  std::array<Accumulator, kBlock> total;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    const auto piece = [&](size_t i) { return static_cast<const T*>(pieces[i]) + begin; };
    const T* first = piece(0);
    for (int64_t j = 0; j < length; ++j) total[j] = static_cast<Accumulator>(first[j]);
    for (size_t i = 1; i < pieces.size(); ++i) {
      const T* next = piece(i);
      for (int64_t j = 0; j < length; ++j) total[j] += static_cast<Accumulator>(next[j]);
    }
    T* result = static_cast<T*>(out) + begin;
    for (int64_t j = 0; j < length; ++j) result[j] = static_cast<T>(total[j]);
  }
}

}  // namespace

void ordered_sum(c10::ScalarType type, void* out, const std::vector<const void*>& pieces,
                 int64_t count) {
  switch (type) {
    case c10::ScalarType::Float:
      return sum_pieces<float, float>(out, pieces, count);
    case c10::ScalarType::Double:
      return sum_pieces<double, double>(out, pieces, count);
    case c10::ScalarType::BFloat16:
      return sum_pieces<c10::BFloat16, float>(out, pieces, count);
    case c10::ScalarType::Half:
      return sum_pieces<c10::Half, float>(out, pieces, count);
    case c10::ScalarType::Int:
      return sum_pieces<int32_t, int32_t>(out, pieces, count);
    case c10::ScalarType::Long:
      return sum_pieces<int64_t, int64_t>(out, pieces, count);
    default:
      SKEIN_CHECK(false, std::string("no sum over ranks for tensors of ") + c10::toString(type));
  }
}

}  // namespace skein::comm
