// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The CUDA kernel's reference. CMakeLists.txt lets the compiler sum in another order here, so that
// products over channels vectorize.
#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "skein/ops/decode/paged_attention_kernel.h"

namespace skein::ops {
namespace {

// Of one token and the heads that share keys.
template <typename T>
class Reader {
 public:
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

  explicit Reader(const PagedAttentionCall& call)
      : call_(call),
        place_(call.place),
        channels_(place_.head_dim),
        group_(call.heads / place_.key_heads),
        query_(static_cast<size_t>(channels_)),
        sum_(static_cast<size_t>(channels_)) {}

  void attend(int64_t token, int64_t key_head) {
    const int64_t text = place_.rows ? place_.rows[token] : token;
    pages_ = place_.pages + text * place_.pages_per_row;
    const int64_t end = place_.positions[token] + 1;
    const int64_t begin = call_.window > 0 ? std::max<int64_t>(0, end - call_.window) : 0;
    weights_.resize(static_cast<size_t>(end - begin));
    for (int64_t i = 0; i < group_; ++i) {
      const int64_t head = token * call_.heads + key_head * group_ + i;
      const int64_t own = key_head * group_ + i;
      const T* q = static_cast<const T*>(call_.q) + token * call_.q_stride + own * channels_;
      for (int64_t c = 0; c < channels_; ++c) query_[c] = static_cast<Wide>(q[c]);
      weigh(begin, key_head);
      add_values(begin, key_head);
      T* y = static_cast<T*>(call_.y) + head * channels_;
      for (int64_t c = 0; c < channels_; ++c) y[c] = static_cast<T>(sum_[c]);
    }
  }

 private:
  const T* row_of(int64_t address, int64_t position, int64_t key_head) const {
    const int64_t page = pages_[position >> place_.page_shift];
    const int64_t in_page = position & ((int64_t{1} << place_.page_shift) - 1);
    const int64_t row = (page << place_.page_shift) + in_page;
    return at_address<const T>(address) + (row * place_.key_heads + key_head) * channels_;
  }

  // The probabilities of the positions from `begin` on.
  void weigh(int64_t begin, int64_t key_head) {
    auto best = -std::numeric_limits<Wide>::max();
    for (size_t i = 0; i < weights_.size(); ++i) {
      const T* key = row_of(place_.addresses[0], begin + static_cast<int64_t>(i), key_head);
      Wide score = 0;
      for (int64_t c = 0; c < channels_; ++c) score += query_[c] * static_cast<Wide>(key[c]);
      score *= static_cast<Wide>(call_.scale);
      if (call_.cap > 0) {
        score = std::tanh(score / static_cast<Wide>(call_.cap)) * static_cast<Wide>(call_.cap);
      }
      weights_[i] = score;
      best = std::max(best, score);
    }
    Wide total = 0;
    for (auto& weight : weights_) {
      weight = std::exp(weight - best);
      total += weight;
    }
    for (auto& weight : weights_) weight /= total;
  }

  void add_values(int64_t begin, int64_t key_head) {
    std::fill(sum_.begin(), sum_.end(), Wide{0});
    for (size_t i = 0; i < weights_.size(); ++i) {
      const T* value = row_of(place_.addresses[1], begin + static_cast<int64_t>(i), key_head);
      const Wide weight = weights_[i];
      for (int64_t c = 0; c < channels_; ++c) sum_[c] += weight * static_cast<Wide>(value[c]);
    }
  }

  const PagedAttentionCall& call_;
  const PagedPlace& place_;
  int64_t channels_, group_;
  const int32_t* pages_ = nullptr;
  std::vector<Wide> query_, weights_, sum_;
};

// Tokens and their key heads that are worth a thread.
int64_t worth_a_thread(const PagedAttentionCall& call) {
  constexpr int64_t kProducts = 1 << 16;
  int64_t positions = 0;
  for (int64_t i = 0; i < call.place.tokens; ++i) positions += call.place.positions[i] + 1;
  const int64_t heads = std::max<int64_t>(1, call.heads / call.place.key_heads);
  const int64_t products = 2 * heads * call.place.head_dim * positions / call.place.tokens;
  return std::max<int64_t>(1, kProducts / std::max<int64_t>(1, products));
}

template <typename T>
void attend(const PagedAttentionCall& call) {
  const int64_t key_heads = call.place.key_heads, count = call.place.tokens * key_heads;
  if (count == 0) return;
  at::parallel_for(0, count, worth_a_thread(call), [&](int64_t begin, int64_t end) {
    Reader<T> reader(call);
    for (int64_t i = begin; i < end; ++i) reader.attend(i / key_heads, i % key_heads);
  });
}

}  // namespace

void paged_attention_on_cpu(const PagedAttentionCall& call) {
  switch (call.place.type) {
    case DType::kF64:
      return attend<double>(call);
    case DType::kBF16:
      return attend<c10::BFloat16>(call);
    case DType::kF16:
      return attend<c10::Half>(call);
    default:
      return attend<float>(call);
  }
}

}  // namespace skein::ops
