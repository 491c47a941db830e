// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/sample_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "skein/core/error.h"
#include "skein/data/permutation.h"

namespace skein::data {

namespace {

int64_t held_out_of(int64_t all, double percent) {
  SKEIN_CHECK(0 < percent && percent < 100, fmt::format("{} percent", percent));
  if (all < 2) {
    throw UserError(fmt::format(
        "validation_split_percentage: the data has {} sample, and one cannot be divided; give an "
        "eval_file, more data, or a smaller block_size",
        all));
  }
  const auto wanted = static_cast<int64_t>(std::llround(percent / 100 * static_cast<double>(all)));
  return std::clamp<int64_t>(wanted, 1, all - 1);
}

}  // namespace

SampleSet::SampleSet(int64_t all, double percent, uint64_t seed, Holdout side)
    : SampleSet(divided(all, held_out_of(all, percent), seed, side)) {}

SampleSet SampleSet::divided(int64_t all, int64_t held_out, uint64_t seed, Holdout side) {
  SKEIN_CHECK(0 < held_out && held_out < all, fmt::format("{} of {} samples", held_out, all));
  SampleSet set(all);
  set.is_divided_ = true;
  set.key_ = holdout_key(seed);
  set.begin_ = side == Holdout::kHeldOut ? 0 : held_out;
  set.count_ = side == Holdout::kHeldOut ? held_out : all - held_out;
  return set;
}

SampleSet SampleSet::first(int64_t count) const {
  auto fewer = *this;
  fewer.count_ = std::min(count_, count);
  return fewer;
}

int64_t SampleSet::sample(int64_t index) const {
  SKEIN_CHECK(0 <= index && index < count_, fmt::format("sample {} of {}", index, count_));
  if (!is_divided_) return index;
  return static_cast<int64_t>(
      unpermuted(static_cast<uint64_t>(begin_ + index), static_cast<uint64_t>(all_), key_));
}

}  // namespace skein::data
