// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// From the data keys of a configuration to rows that can be mapped; prepare.h says how.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/data/rows/encode_rows.h"
#include "skein/data/rows/row_cache.h"
#include "skein/data/source_files.h"

namespace skein::data {

struct PreparedRows {
  RowArray rows;  // of pairs: answers
  RowKind kind = RowKind::kRows;
  std::string digest;           // 32 hexadecimal digits: equal for equal sources and encoders
  std::vector<fs::path> files;  // the sources
  fs::path prepared_file;
  bool was_reused = false;
  uint64_t num_tokens = 0;
  uint64_t bad_rows = 0;  // left out
  uint64_t largest_token = 0;

  // Pairs count once.
  int64_t count() const { return rows.count() / answers_of(kind); }
  const RowEntry& entry(int64_t row, int64_t answer = 0) const {
    return rows.entry(row * answers_of(kind) + answer);
  }
  // "FILE:ROW", for messages.
  std::string place_of(int64_t row) const;
};

// Throws UserError when the keys name nothing or something that is not there; IoError for bad rows
// (file:row), files without a row, or a disk that is full; and what the encoder throws.
PreparedRows prepare_rows(const config::DataConfig& data, const RowEncoder& encoder, Split split);

// Throws IoError.
[[noreturn]] void refuse_no_rows(const std::vector<fs::path>& files, Split split);

}  // namespace skein::data
