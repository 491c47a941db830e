// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/select.h"

#include <fmt/format.h>

#include "skein/cli/gradients/verbs.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::cli {

int select_by_scores(Arguments arguments) {
  std::vector<std::string> scores, train_files;
  std::string top, out = ".";
  FlagSet flags("skein gradients select");
  flags.add_list("scores", scores);
  flags.add_list("train-files", train_files);
  flags.add("top", top);
  flags.add("out", out);
  add_less_flags(flags);
  const auto others = flags.read(arguments);
  if (!others.empty()) {
    throw UserError(fmt::format("skein gradients select: '{}' belongs to no flag", others[0]));
  }
  if (scores.empty() || train_files.empty() || top.empty()) {
    throw UserError("skein gradients select needs --scores F…, --train-files F… and --top 5%|N");
  }
  const auto summary =
      gradient_features::select({.scores = {scores.begin(), scores.end()},
                                 .train_files = {train_files.begin(), train_files.end()},
                                 .top = gradient_features::parse_top(top),
                                 .out = out});
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
