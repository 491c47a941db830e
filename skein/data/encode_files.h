// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How are text files encoded by several threads into one file, always the same?
//
// Workers take pieces and encode them; the calling thread writes the results in the pieces' order.
// Only a few pieces per worker are in memory at a time.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/text/text_codec.h"

namespace skein::data {

struct EncodeFilesOptions {
  config::BadLines bad_lines = config::BadLines::kStop;
  int threads = 1;
  uint64_t piece_bytes = uint64_t{4} << 20;
  std::function<void(uint64_t)> on_bytes;  // text done; called by the calling thread
};

struct EncodeTotals {
  uint64_t documents = 0;
  uint64_t bad_lines = 0;
  std::vector<std::string> first_bad_lines;  // "file:line: reason"
};

// Calls write(tokens) in order. Throws IoError for the first bad line when bad_lines is kStop, and
// whatever the codec or `write` throws.
EncodeTotals encode_files(std::span<const fs::path> files, const text::TextCodec& codec,
                          const EncodeFilesOptions& options,
                          const std::function<void(std::span<const uint32_t>)>& write);

struct EncodedBeginning {
  uint64_t bytes = 0;  // of the file
  uint64_t tokens = 0;
};
// The beginning of one file alone, at most about so many bytes of it: what the rest will be like.
// Throws as encode_files() does.
EncodedBeginning encode_beginning(const fs::path& file, const text::TextCodec& codec,
                                  config::BadLines bad_lines, uint64_t bytes);

}  // namespace skein::data
