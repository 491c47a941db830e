// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What text does one line of a `.jsonl` file hold? And is a file of text UTF-8 at all?

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "skein/core/error.h"
#include "skein/core/file.h"

namespace skein::text {

constexpr uint64_t kMaxLineBytes = uint64_t{64} << 20;

// The object has no "text": most likely no line of its file has.
struct NoText : IoError {
  using IoError::IoError;
};

// The string under "text" of the JSON object `line`; other keys are ignored. Throws IoError with
// the reason alone, since only the caller knows file and line number. Safe on hostile bytes: no
// tree is built, nesting is limited to 64, and no message repeats the input.
std::string text_of_line(std::string_view line);

constexpr size_t kEncodingBytes = 4;  // of a file's beginning, which tell

// Throws IoError, with the command that converts the file, where it begins as UTF-16 or UTF-32
// does, which editors and shells of Windows write: with a byte order mark, or a letter and zeros.
void require_utf8(std::string_view beginning, const fs::path& path);

}  // namespace skein::text
