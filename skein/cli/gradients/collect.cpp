// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <utility>

#include "skein/cli/flag_set.h"
#include "skein/cli/gradients/collect_flags.h"
#include "skein/cli/gradients/verbs.h"
#include "skein/cli/launch_ranks.h"
#include "skein/core/parallel.h"
#include "skein/data/rows/prepare_rows.h"
#include "skein/plan/refusals.h"
#include "skein/plan/run_data.h"

namespace skein::cli {
namespace {

std::string prepare(const config::RunConfig& run) {
  const auto tokens = data::open_row_tokens(run.model, run.rows);
  return data::prepare_rows(run.data, tokens.encoder, data::Split::kTrain).digest;
}

}  // namespace

int collect_gradients(Arguments arguments) {
  const auto words = translate_rank_flags(arguments);
  auto [split, early_stop] = begin_rank_command(words);
  const auto flags = parse_collect_flags(split.rest);
  std::vector<std::string> typed = {"collect"}, passed = {"collect"};
  typed.insert(typed.end(), arguments.begin(), arguments.end());
  passed.insert(passed.end(), split.rest.begin(), split.rest.end());
  RankJob job{.command = "gradients",
              .typed = typed,
              .arguments = passed,
              .flags = split.flags,
              .resolved = flags.run};
  job.check = [](const config::Resolved& seen, int, const plan::Place&) {
    data::open_row_tokens(seen.config.model, seen.config.rows);
  };
  job.prepare = [](const config::Resolved& seen, int) { return prepare(seen.config); };
  return launch_ranks(job, std::move(early_stop));
}

}  // namespace skein::cli
