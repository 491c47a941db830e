// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/data_outlook.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "skein/data/blocks.h"
#include "skein/data/prepare.h"
#include "skein/data/preview.h"
#include "skein/data/rows/preview_rows.h"
#include "skein/data/sample_plan.h"
#include "skein/plan/rules.h"
#include "skein/plan/run_data.h"
#include "skein/text/text_codec.h"

namespace skein::plan {
namespace {

// An estimate is no reason to refuse: where it leaves no whole batch, the steps are unknown.
void count_steps(const config::RunConfig& config, int64_t global_batch, DataOutlook& outlook) {
  const data::Blocks blocks(outlook.tokens, config.data.block_size);
  if (blocks.count() == 0) return;
  const auto samples = data::samples_of(config.data, blocks.count(), data::Split::kTrain,
                                        data::held_out_percentage(config.data, evaluates(config)),
                                        data_seed(config));
  outlook.blocks = samples.count();
  const bool drop_last = config.data.dataloader_drop_last;
  if (!outlook.exact && drop_last && samples.count() < global_batch) return;
  outlook.steps_per_epoch =
      data::SamplePlan(samples, {.global_batch = global_batch, .drop_last = drop_last})
          .steps_per_epoch();
}

// Of `seen` rows those that are trained on.
int64_t trained_rows(const config::RunConfig& config, const data::RunRowsOptions& options,
                     int64_t seen) {
  if (seen < 2) return seen;
  const auto set =
      data::rows_of_split(seen, data::held_out_rows(options), options.seed, data::Holdout::kKept);
  return std::min(set.count(), config.data.max_train_samples.value_or(set.count()));
}

DataOutlook look_at_rows(const config::RunConfig& config, int64_t global_batch) {
  const auto sources = sources_of(config, data::Split::kTrain);
  DataOutlook outlook{.files = sources.files.size()};
  if (sources.files.empty()) return outlook;
  const auto tokens = data::open_row_tokens(config.model, config.rows);
  const auto vocabulary = vocabulary_of(config).value_or(tokens.encoder.vocab_size);
  const auto options = rows_options(config, tokens, vocabulary);
  const auto seen = data::preview_rows(sources, options);
  const auto eval = sources_of(config, data::Split::kEval);
  if (!eval.files.empty()) data::preview_rows(eval, options);
  outlook.bytes = seen.bytes;
  outlook.tokens = seen.tokens;
  outlook.exact = seen.exact;
  if (seen.rows == 0) return outlook;
  outlook.rows = trained_rows(config, options, seen.rows);
  outlook.longest = seen.exact ? seen.longest : 0;
  const double share = static_cast<double>(outlook.rows) / static_cast<double>(seen.rows);
  if (options.packing) {
    const double packs = std::ceil(static_cast<double>(seen.packs) * share);
    outlook.packs = static_cast<int64_t>(packs);
  }
  const int64_t dealt = options.packing ? outlook.packs : outlook.rows;
  const bool drop_last = config.data.dataloader_drop_last && dealt >= global_batch;
  outlook.steps_per_epoch = (dealt + (drop_last ? 0 : global_batch - 1)) / global_batch;
  return outlook;
}

}  // namespace

DataOutlook look_at_data(const config::RunConfig& config, int64_t global_batch) {
  if (trains_on_rows(config)) return look_at_rows(config, global_batch);
  const auto sources = data::find_sources(config.data, data::Split::kTrain);
  DataOutlook outlook{.files = sources.files.size()};
  if (sources.files.empty()) return outlook;
  const auto codec = text::open_codec(config.model);
  data::PreviewOptions options{.bad_lines = config.data.bad_lines,
                               .vocab_size = vocabulary_of(config)};
  const auto seen = data::preview(sources, *codec, options);
  outlook.bytes = seen.bytes;
  outlook.tokens = seen.tokens;
  outlook.exact = seen.exact;
  const auto eval = data::find_sources(config.data, data::Split::kEval);
  if (!eval.files.empty()) {
    options.split = data::Split::kEval;
    if (!evaluates(config)) options.vocab_size.reset();  // prepared, but not read
    data::preview(eval, *codec, options);
  }
  count_steps(config, global_batch, outlook);
  return outlook;
}

}  // namespace skein::plan
