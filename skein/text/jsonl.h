// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What text does one line of a `.jsonl` file hold?

#include <cstdint>
#include <string>
#include <string_view>

namespace skein::text {

constexpr uint64_t kMaxLineBytes = uint64_t{64} << 20;

// The string under "text" of the JSON object `line`; other keys are ignored. Throws IoError with
// the reason alone, since only the caller knows file and line number. Safe on hostile bytes: no
// tree is built, nesting is limited to 64, and no message repeats the input.
std::string text_of_line(std::string_view line);

}  // namespace skein::text
