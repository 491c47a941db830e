// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/nothing_left.h"

#include <fmt/format.h>

#include "skein/core/amounts.h"

namespace skein::plan {

std::string nothing_left_text(int64_t step, int64_t total_steps,
                              const std::optional<std::string>& early) {
  if (!early || step >= total_steps) {
    return fmt::format("nothing left to do: all {} steps are done", shown_count(step));
  }
  return fmt::format(
      "nothing left to do: the run ended early, at step {} of {}: {}. A larger "
      "early_stopping_patience, or early_stopping_patience=none, goes on",
      shown_count(step), shown_count(total_steps), *early);
}

}  // namespace skein::plan
