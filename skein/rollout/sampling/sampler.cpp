// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "skein/core/error.h"
#include "skein/core/random.h"

namespace skein::rollout {
namespace {

constexpr uint64_t kStream = 0x73616D706C65;  // "sample": other uses of a seed draw other numbers

void require(bool holds, const char* name, double value, const char* expected) {
  if (!holds) throw UserError(fmt::format("{} is {}, expected {}", name, value, expected));
}

void penalise(std::span<float> logits, std::span<const int64_t> seen, double penalty) {
  const auto factor = static_cast<float>(penalty);
  for (const auto token : seen) {
    auto& logit = logits[static_cast<size_t>(token)];
    logit = logit < 0 ? logit * factor : logit / factor;
  }
}

size_t likeliest(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);
  return static_cast<size_t>(best - logits.begin());
}

void check_numbers(std::span<const float> logits) {
  // +infinity would make every probability NaN; -infinity only rules a token out.
  const auto is_bad = [](float x) { return std::isnan(x) || x == HUGE_VALF; };
  if (std::ranges::none_of(logits, is_bad) && logits[likeliest(logits)] != -HUGE_VALF) return;
  throw UserError(
      "the model's logits are not finite: its weights hold NaN or infinite values, or are too "
      "large for the dtype");
}

}  // namespace

void SamplingOptions::check() const {
  require(temperature >= 0 && std::isfinite(temperature), "temperature", temperature,
          "0 (greedy) or more");
  require(top_k >= 0, "top_k", static_cast<double>(top_k), "0 (all tokens) or more");
  require(top_p > 0 && top_p <= 1, "top_p", top_p, "above 0 and at most 1");
  require(min_p >= 0 && min_p <= 1, "min_p", min_p, "between 0 and 1");
  require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty, "above 0");
}

double uniform(const SamplingOptions& options, const DrawKey& key) {
  const auto run = random::mix(random::mix(options.seed, kStream), options.step);
  const auto words = random::philox(random::mix(run, key.prompt), key.position, key.sample);
  const uint64_t bits = (uint64_t{words.word[0]} << 21) ^ (words.word[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) { options_.check(); }

int64_t Sampler::pick(std::span<float> logits, std::span<const int64_t> seen, const DrawKey& key) {
  SKEIN_CHECK(!logits.empty(), "no logits");
  check_numbers(logits);
  if (options_.repetition_penalty != 1) penalise(logits, seen, options_.repetition_penalty);
  if (options_.temperature == 0) return static_cast<int64_t>(likeliest(logits));
  return draw(logits, key);
}

// Each of top-k, top-p and min-p keeps a prefix of the ranking, so the kept tokens are the shortest
// of the three.
int64_t Sampler::draw(std::span<const float> logits, const DrawKey& key) {
  const auto best = static_cast<double>(logits[likeliest(logits)]);
  const auto weight = [&](size_t token) {  // relative to the likeliest token's
    return std::exp((static_cast<double>(logits[token]) - best) / options_.temperature);
  };
  num_ranked_ = 0;
  const auto ranked_weight = [&](size_t place) {
    if (place >= num_ranked_) rank(logits, std::max<size_t>(64, 8 * place));
    return weight(static_cast<size_t>(ranks_[place]));
  };
  size_t kept = logits.size();
  double mass = 0;
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < kept) {
    kept = static_cast<size_t>(options_.top_k);
    rank(logits, kept);
    for (size_t i = 0; i < kept; ++i) mass += ranked_weight(i);
  } else {
    for (size_t token = 0; token < kept; ++token) mass += weight(token);
  }
  if (options_.top_p < 1 || options_.min_p > 0) {
    const double enough = options_.top_p < 1 ? options_.top_p * mass : HUGE_VAL;
    const auto limit = kept;
    mass = ranked_weight(0);
    for (kept = 1; kept < limit && mass < enough; ++kept) {
      const auto next = ranked_weight(kept);
      if (next < options_.min_p) break;
      mass += next;
    }
  }
  const double target = uniform(options_, key) * mass;
  double sum = 0;
  for (size_t place = 0; place + 1 < kept; ++place) {
    sum += ranked_weight(place);
    if (sum > target) return ranks_[place];
  }
  ranked_weight(kept - 1);
  return ranks_[kept - 1];
}

void Sampler::rank(std::span<const float> logits, size_t count) {
  const auto before = [&](int32_t a, int32_t b) {
    const auto x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (num_ranked_ == 0) {
    ranks_.resize(logits.size());
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }
  count = std::min(count, logits.size());
  const auto begin = ranks_.begin() + static_cast<int64_t>(num_ranked_);
  const auto end = ranks_.begin() + static_cast<int64_t>(count);
  std::nth_element(begin, end, ranks_.end(), before);
  std::sort(begin, end, before);
  num_ranked_ = count;
}

}  // namespace skein::rollout
