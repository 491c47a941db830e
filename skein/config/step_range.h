// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Some updates of a run, as a user writes them: "10-12", or "10".

#include <cstdint>
#include <optional>
#include <string>

namespace skein::config {

// Counted from 1, the last one included.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;

  bool contains(int64_t step) const { return step >= first && step <= last; }
  std::string text() const;

  bool operator==(const StepRange&) const = default;
};

// None when the text is no such range.
std::optional<StepRange> parse_step_range(const std::string& text);

}  // namespace skein::config
