// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which training samples have the best scores? Their lines, byte for byte, become a new file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"

namespace skein::gradient_features {

// "5%" (of all samples, rounded down) or a number of samples.
struct Top {
  double share = 0;  // 0: `count` says
  int64_t count = 0;
};
// Throws UserError.
Top parse_top(const std::string& text);
// As LESS names the file: "top_p0.05.jsonl", "top_num100.jsonl".
std::string top_file_name(const Top& top);

struct SelectOptions {
  std::vector<fs::path> scores;  // files of score_file.h
  std::vector<fs::path>
      train_files;  // .jsonl, the data of each; of one file of scores all, in order
  Top top;
  fs::path out;
};

struct SelectSummary {
  int64_t num_samples = 0;
  int64_t num_asked = 0;
  int64_t num_selected = 0;  // fewer than asked for where too few have a score
  float lowest = 0;          // score that was selected
  std::vector<fs::path> files;
};

// sorted.csv, the selected lines, scores.svg.
std::vector<fs::path> selected_files(const SelectOptions& options);

// Writes sorted.csv (all samples, best first: file name, index, score), the selected lines in the
// same order, and scores.svg, a histogram, into `out`; each is written anew. Equal scores come in
// the order of the files. Throws UserError when scores and data do not belong together, and for an
// output that is one of the inputs.
SelectSummary select(const SelectOptions& options);

}  // namespace skein::gradient_features
