// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How are files of rows encoded by several threads, always the same?
//
// One thread at a time cuts a file into its rows, many parse and encode them, and the calling
// thread gets the results in the rows' order.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/data/rows/row.h"
#include "skein/text/conversation.h"

namespace skein::data {

// How does a row become ids, and which of them are targets?
struct RowEncoder {
  RowKind kind = RowKind::kRows;  // that rows are read as
  // Any number of threads call it. An IoError is the row's fault; anything else ends
  // preparation, a UserError with the row's place.
  std::function<text::MaskedTokens(const Row&)> encode;
  // The same for two encoders only if they give the same for every row: the tokenizer, the template
  // and what is masked.
  std::string identity;
  int64_t vocab_size = 0;  // the highest id + 1
};

struct EncodedRow {
  text::MaskedTokens tokens;  // of a pair: the chosen answer behind the prompt
  size_t file = 0;            // its place in the list of files
  uint64_t number = 0;        // RawRow::number
  bool is_plain = false;      // a text that was asked, and answers: no template is around them
  // Of pairs:
  std::optional<text::MaskedTokens> rejected = {};
  std::optional<double> margin = {};
  bool desirable = false;  // of an answer that was judged alone
  std::string json = {};   // of a prompt: the row as it stands in its file
};

struct EncodeRowsOptions {
  config::BadLines bad_lines = config::BadLines::kStop;
  int threads = 1;
  uint64_t piece_bytes = uint64_t{1} << 20;
  uint64_t most_bytes = UINT64_MAX;        // of each file: its first rows
  std::function<void(uint64_t)> on_bytes;  // done; called by the calling thread
};

struct EncodeRowsTotals {
  uint64_t rows = 0;
  uint64_t bad_rows = 0;
  std::vector<std::string> first_bad_rows;  // "file:row: reason"
};

// Calls write(row) in order. Throws IoError for the first bad row when bad_lines is kStop, and
// always for a broken list; and whatever the encoder or `write` throws, a UserError of the encoder
// with the row's place.
EncodeRowsTotals encode_rows(std::span<const fs::path> files, const RowEncoder& encoder,
                             const EncodeRowsOptions& options,
                             const std::function<void(const EncodedRow&)>& write);

}  // namespace skein::data
