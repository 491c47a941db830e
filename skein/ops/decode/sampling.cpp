// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/decode/sampling.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "skein/core/error.h"
#include "skein/ops/decode/sampling_kernel.h"
#include "skein/tensor/dtype.h"

namespace skein::ops {
namespace {

// One row after the other, with memory that is kept between them.
template <typename T>
class RowSampler {
 public:
  explicit RowSampler(const SampleCall& call)
      : call_(call),
        values_(static_cast<size_t>(call.vocabulary)),
        weights_(static_cast<size_t>(call.vocabulary)),
        bins_(kMostDigits) {}

  void sample(int64_t row) {
    read(row);
    const auto token = call_.greedy ? likeliest() : draw(row);
    call_.tokens[row] = token;
    call_.log_probs[row] = log_prob(row, token);
    if (call_.seen) call_.seen[row * call_.vocabulary + token] = 1;
  }

 private:
  double raw(int64_t row, int64_t token) const {
    return static_cast<double>(static_cast<const T*>(call_.logits)[row * call_.stride + token]);
  }

  void read(int64_t row) {
    for (int64_t i = 0; i < call_.vocabulary; ++i) {
      const bool is_seen = call_.seen && call_.seen[row * call_.vocabulary + i] != 0;
      values_[i] = is_seen ? penalised(raw(row, i), call_.penalty) : raw(row, i);
    }
  }

  int64_t likeliest() const { return std::ranges::max_element(values_) - values_.begin(); }

  int64_t draw(int64_t row) {
    const double largest = *std::ranges::max_element(values_);
    for (size_t i = 0; i < values_.size(); ++i) {
      weights_[i] = weight_of(values_[i], largest, call_.inverse);
    }
    const auto last = last_kept();
    const auto is_kept = [&](size_t i) {
      return weights_[i] >= call_.least_weight && (last == 0 || key(i) >= last);
    };
    uint64_t mass = 0;
    for (size_t i = 0; i < values_.size(); ++i) mass += is_kept(i) ? weights_[i] : 0;
    const auto bits =
        draw_bits(static_cast<uint64_t>(call_.keys[row]), static_cast<uint64_t>(call_.samples[row]),
                  static_cast<uint64_t>(call_.positions[row] + call_.position_offset));
    const auto point = point_of(bits, mass);
    uint64_t sum = 0;
    for (size_t i = 0; i < values_.size(); ++i) {
      sum += is_kept(i) ? weights_[i] : 0;
      if (sum > point) return static_cast<int64_t>(i);
    }
    return likeliest();  // logits that are no numbers
  }

  uint32_t key(size_t i) const { return sort_key_of(static_cast<float>(values_[i])); }

  // The sort key of the last token that top-k and top-p leave; 0: they leave all.
  uint32_t last_kept() {
    uint32_t last = 0;
    if (call_.top_k > 0 && call_.top_k < call_.vocabulary) {
      last = last_of(static_cast<uint64_t>(call_.top_k), 0, [](size_t) { return uint64_t{1}; });
    }
    if (call_.top_p >= 1) return last;
    uint64_t mass = 0;
    for (size_t i = 0; i < values_.size(); ++i) mass += key(i) >= last ? weights_[i] : 0;
    const auto goal = static_cast<uint64_t>(call_.top_p * static_cast<double>(mass));
    return last_of(std::max<uint64_t>(1, goal), last, [&](size_t i) { return weights_[i]; });
  }

  // From the greatest sort key down: where the sum of `measure` reaches the goal. Not below
  // `least`.
  uint32_t last_of(uint64_t goal, uint32_t least, auto&& measure) {
    uint32_t prefix = 0;
    uint64_t above = 0;
    for (int digit = 0; digit < kKeyDigits; ++digit) {
      const int shift = kDigitShift[digit], bits = kDigitBits[digit];
      std::ranges::fill(bins_, 0);
      for (size_t i = 0; i < values_.size(); ++i) {
        const auto own = key(i);
        const bool is_here = digit == 0 || own >> (shift + bits) == prefix;
        if (is_here) bins_[own >> shift & ((1U << bits) - 1)] += measure(i);
      }
      uint32_t bin = (1U << bits) - 1;
      while (bin > 0 && above + bins_[bin] < goal) above += bins_[bin--];
      prefix = prefix << bits | bin;
    }
    return std::max(prefix, least);
  }

  double log_prob(int64_t row, int64_t token) const {
    auto largest = -std::numeric_limits<double>::infinity();
    bool is_bad = false;
    for (int64_t i = 0; i < call_.vocabulary; ++i) {
      largest = std::max(largest, raw(row, i));
      is_bad = is_bad || std::isnan(raw(row, i));
    }
    if (is_bad || std::isinf(largest)) return std::numeric_limits<double>::quiet_NaN();
    if (!call_.wants_log_probs) return 0;
    uint64_t mass = 0;
    for (int64_t i = 0; i < call_.vocabulary; ++i) {
      mass += weight_of(raw(row, i), largest, call_.inverse);
    }
    return (raw(row, token) - largest) * call_.inverse -
           std::log(static_cast<double>(mass) / kWeightOne);
  }

  const SampleCall& call_;
  std::vector<double> values_;
  std::vector<uint64_t> weights_, bins_;
};

template <typename T>
void sample_rows(const SampleCall& call) {
  constexpr int64_t kNumbers = 1 << 14;  // that are worth a thread
  const auto share = std::max<int64_t>(1, kNumbers / call.vocabulary);
  at::parallel_for(0, call.rows, share, [&](int64_t begin, int64_t end) {
    RowSampler<T> sampler(call);
    for (int64_t row = begin; row < end; ++row) sampler.sample(row);
  });
}

}  // namespace

Drawn sample(const at::Tensor& logits, const SamplingOptions& options, const Draws& draws) {
  const auto rows = logits.size(0), vocabulary = logits.size(1);
  // Programs should not grow by what is rarely asked for.
  const bool widens = logits.scalar_type() == at::kHalf ||
                      (logits.is_cpu() && logits.scalar_type() == at::kBFloat16);
  const auto scores = widens ? logits.to(at::kFloat) : logits;
  SKEIN_CHECK(scores.stride(1) == 1, "a row of logits lies together");
  for (const auto* one : {&draws.keys, &draws.samples, &draws.positions}) {
    SKEIN_CHECK(one->numel() == rows && one->is_contiguous(), "draws of each row");
  }
  const auto numbers = logits.options().requires_grad(false);
  Drawn drawn{at::empty({rows}, numbers.dtype(at::kLong)),
              at::empty({rows}, numbers.dtype(at::kDouble))};
  const double temperature = options.temperature;
  const SampleCall call{
      .logits = scores.const_data_ptr(),
      .rows = rows,
      .vocabulary = vocabulary,
      .stride = scores.stride(0),
      .type = tensor::dtype_of(scores.scalar_type()),
      .greedy = temperature == 0,
      .inverse = temperature == 0 ? 1 : std::min(1 / temperature, 1e300),
      .top_k = options.top_k,
      .top_p = options.top_p,
      .least_weight = static_cast<uint64_t>(std::ceil(options.min_p * kWeightOne)),
      .penalty = options.repetition_penalty,
      .seen = draws.seen.defined() ? draws.seen.mutable_data_ptr<uint8_t>() : nullptr,
      .keys = draws.keys.const_data_ptr<int64_t>(),
      .samples = draws.samples.const_data_ptr<int64_t>(),
      .positions = draws.positions.const_data_ptr<int64_t>(),
      .position_offset = 1,
      .tokens = drawn.tokens.mutable_data_ptr<int64_t>(),
      .log_probs = drawn.log_probs.mutable_data_ptr<double>(),
      .wants_log_probs = options.log_probs};
  if (!logits.is_cpu()) {
    sample_on_cuda(call);
  } else if (scores.scalar_type() == at::kDouble) {
    sample_rows<double>(call);
  } else {
    sample_rows<float>(call);
  }
  return drawn;
}

}  // namespace skein::ops
