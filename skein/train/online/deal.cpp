// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/deal.h"

#include <algorithm>

namespace skein::train {

int64_t Deal::num_mini_batches() const {
  return std::min(options_.mini_batches, (options_.completions + global() - 1) / global());
}

Numbers Deal::within(int64_t begin, int64_t count) const {
  return {std::min(begin, options_.completions), std::min(begin + count, options_.completions)};
}

Numbers Deal::mini_batch(int64_t mini) const { return within(mini * global(), global()); }

Numbers Deal::micro_batch(int64_t mini, int64_t micro) const {
  const int64_t of_rank = options_.per_device * options_.accumulation;
  return within(mini * global() + options_.rank * of_rank + micro * options_.per_device,
                options_.per_device);
}

std::vector<int64_t> Deal::own() const {
  std::vector<int64_t> numbers;
  for (int64_t mini = 0; mini < num_mini_batches(); ++mini) {
    for (int64_t micro = 0; micro < num_micro_batches(); ++micro) {
      const auto [begin, end] = micro_batch(mini, micro);
      for (int64_t number = begin; number < end; ++number) numbers.push_back(number);
    }
  }
  return numbers;
}

}  // namespace skein::train
