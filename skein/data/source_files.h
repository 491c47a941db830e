// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which files does a split of the data consist of?
//
//   train   train_file, then train_file_dir
//   eval    eval_file, then validation_file_dir; when neither is given and training reads a
//           folder of token files named for both splits (train.bin and val.bin), its val files
//
// A file key takes one path, several with commas between them, patterns (`*`, `?`, `[…]`) and
// folders. A folder means all .txt, .jsonl and .bin files below it, or all .jsonl and .json files
// where rows are wanted, sorted by path; hidden ones are left out, and so are folders of runs
// (their logs are no data); links are followed, and no folder is read twice. A file that the file
// key names is not read again as one of the folder key's. Files of other kinds are left out, with
// a note, and so is a folder's dataset_info.json.

#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/file.h"

namespace skein::data {

enum class Split { kTrain, kEval };
// Text and rows are encoded; tokens are used as they are.
enum class SourceKind { kText, kTokens, kRows };

struct Sources {
  SourceKind kind = SourceKind::kText;
  std::vector<fs::path> files;  // in the order in which they are read; empty: none were asked for
  std::vector<std::string> notes;  // what was left out, for the user to know

  bool holds_text() const { return kind == SourceKind::kText && !files.empty(); }
};

// Throws UserError for what does not exist, has no known kind, or mixes text with tokens.
Sources find_sources(const config::DataConfig& data, Split split);

// The same for rows of chat and instruction data, which are in .jsonl and .json files.
Sources find_row_sources(const config::DataConfig& data, Split split);

// Both for what one flag names, as a file key does. `flag` begins messages.
Sources find_files(const char* flag, const std::string& named);
Sources find_row_files(const char* flag, const std::string& named);

// "train", "eval".
const char* split_name(Split split);

}  // namespace skein::data
