// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much may one rendering cost? A template comes from outside, and so does what it is fed.

#include <fmt/format.h>

#include <cstdint>

#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

struct Limits {
  // Expressions, statements, items of lists, and blocks of 256 bytes of strings: both time and
  // memory are bounded by it.
  uint64_t steps = 1'000'000;
  uint64_t output_bytes = uint64_t{16} << 20;
  int depth = 64;           // macros that call each other
  int64_t range = 100'000;  // items of range()
  int nesting = 1000;       // expressions and blocks under evaluation, macros included
};

class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  uint64_t steps() const { return steps_; }

  void step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.steps) {
      throw Failure(
          fmt::format("more than {} steps: the template does not end, or the conversation "
                      "is too long for it",
                      limits_.steps));
    }
  }

  // Before a string of `bytes` is made or searched.
  void text(uint64_t bytes) { step(bytes / 256); }

 private:
  Limits limits_;
  uint64_t steps_ = 0;
};

}  // namespace skein::text::jinja
