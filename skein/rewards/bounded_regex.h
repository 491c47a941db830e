// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Does a pattern (PCRE2's syntax, UTF-8) occur in a text, decided within a bounded number of steps?
//
// A step is an item of the pattern tried, or a byte that one item runs over. They are counted,
// never timed: the same text gets the same verdict on every machine.

#include <optional>
#include <string>
#include <string_view>

#include "skein/core/pcre2.h"

namespace skein::rewards {

class BoundedRegex {
 public:
  // Throws UserError when it cannot be compiled.
  explicit BoundedRegex(const std::string& pattern);

  // Nothing: more than 4 million steps and 64 for each byte. Bytes that are no UTF-8 match nothing.
  std::optional<bool> occurs_in(std::string_view text) const;

 private:
  pcre2::Regex regex_;
};

}  // namespace skein::rewards
