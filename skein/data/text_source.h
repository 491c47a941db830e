// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does a training file become tokens?
//
//   .txt    the whole file is one document
//   .jsonl  one object per line, its "text" is one document; blank lines are skipped
//   .bin    little-endian uint16 token ids, taken as they are (and mapped, not read)
//
// Documents become byte ids 0-255, each document followed by kEndOfDocument.

#include <cstdint>

#include "skein/core/file.h"
#include "skein/data/token_array.h"

namespace skein::data {

constexpr uint16_t kEndOfDocument = 256;
constexpr int64_t kByteVocabulary = 257;
constexpr uint64_t kMaxLineBytes = uint64_t{64} << 20;

bool is_token_file(const fs::path& path);

// Throws UserError when the file is missing or of no known kind, IoError (with file:line where
// there are lines) when its content is broken or has no two tokens: nothing could be predicted.
TokenArray read_tokens(const fs::path& path);

}  // namespace skein::data
