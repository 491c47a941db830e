// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/select.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/cli/gradients/verbs.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"
#include "skein/data/source_files.h"

namespace skein::cli {
namespace {

// Of a folder the one file of scores in it.
fs::path file_of_scores(const fs::path& word) {
  std::error_code error;
  if (!fs::is_directory(word, error)) return word;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(word, error)) {
    const auto name = entry.path().filename().string();
    if (name.ends_with("_influence_score.safetensors")) found.push_back(name);
  }
  if (found.size() == 1) return word / found[0];
  std::ranges::sort(found);
  throw UserError(fmt::format(
      "--scores: the folder {} {}: name the file of `skein gradients score`", shown(word.string()),
      found.empty() ? std::string("holds no _influence_score.safetensors")
                    : fmt::format("holds {}", shown(fmt::format("{}", fmt::join(found, ", "))))));
}

std::vector<fs::path> files_of_scores(const std::vector<std::string>& words) {
  std::vector<fs::path> files;
  for (const auto& word : without_commas(words)) files.push_back(file_of_scores(word));
  return files;
}

// A file, or what train_file and train_file_dir take: a folder, a pattern, a list. In the order in
// which `skein gradients collect` numbers their rows.
std::vector<fs::path> files_of_rows(const std::vector<std::string>& words) {
  std::vector<fs::path> files;
  for (const auto& word : words) {
    std::error_code error;
    if (fs::is_regular_file(word, error)) {
      files.emplace_back(word);
      continue;
    }
    for (auto& file : data::find_row_files("--train-files", word).files) files.push_back(file);
  }
  return files;
}

}  // namespace

int select_by_scores(Arguments arguments) {
  std::vector<std::string> scores, train_files;
  std::string top, out = ".";
  FlagSet flags("skein gradients select");
  flags.add_list("scores", scores);
  flags.add_list("train-files", train_files);
  flags.add("top", top);
  flags.add("out", out);
  add_less_flags(flags, "select");
  refuse_loose_words("select", flags.read(arguments), "--scores and --train-files");
  if (scores.empty() || train_files.empty() || top.empty()) {
    throw UserError("skein gradients select needs --scores F…, --train-files F… and --top 5%|N");
  }
  const gradient_features::SelectOptions options{.scores = files_of_scores(scores),
                                                 .train_files = files_of_rows(train_files),
                                                 .top = gradient_features::parse_top(top),
                                                 .out = out};
  tell_overwritten(gradient_features::selected_files(options));
  const auto summary = gradient_features::select(options);
  if (summary.num_asked > summary.num_selected) {
    log_warning("--top asks for {}, and {} of {} have a score: all of these are selected",
                shown_count(summary.num_asked), shown_count(summary.num_selected),
                counted(static_cast<uint64_t>(summary.num_samples), "sample"));
  }
  log_info("{}: {} of {}, scores from {:.6f} on", summary.files[1].string(),
           shown_count(summary.num_selected),
           counted(static_cast<uint64_t>(summary.num_samples), "sample"), summary.lowest);
  return 0;
}

}  // namespace skein::cli
