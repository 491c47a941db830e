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

// All rows were seen: what follows is as the loader has it.
void count_rows(const data::RowPreview& seen, const data::RunRowsOptions& options,
                const data::SampleOrder& order, DataOutlook& outlook) {
  const auto set = data::trained_rows(options, seen.rows);
  const auto length_of = [&](int64_t row) { return seen.lengths[static_cast<size_t>(row)]; };
  const auto packs = data::packs_of(options, length_of, set);
  const auto plan =
      packs ? data::SamplePlan(set.count(), packs, order) : data::SamplePlan(set, order);
  outlook.rows = set.count();
  outlook.packs = options.packing ? packs->count(0) : 0;
  outlook.longest = seen.longest;
  outlook.steps_per_epoch = plan.steps_per_epoch();
}

// An estimate is no reason to refuse.
void estimate_rows(const data::RowPreview& seen, const data::RunRowsOptions& options,
                   const data::SampleOrder& order, DataOutlook& outlook) {
  outlook.rows = seen.rows < 2 ? seen.rows : data::trained_rows(options, seen.rows).count();
  const double share = static_cast<double>(outlook.rows) / static_cast<double>(seen.rows);
  if (options.packing) {
    const double packs = std::ceil(static_cast<double>(seen.packs) * share);
    outlook.packs = static_cast<int64_t>(packs);
  }
  const int64_t dealt = options.packing ? outlook.packs : outlook.rows;
  const bool drop_last = order.drop_last && dealt >= order.global_batch;
  outlook.steps_per_epoch = (dealt + (drop_last ? 0 : order.global_batch - 1)) / order.global_batch;
}

DataOutlook look_at_rows(const config::RunConfig& config, int64_t global_batch) {
  const auto sources = sources_of(config, data::Split::kTrain);
  DataOutlook outlook{.files = sources.files.size()};
  if (sources.files.empty()) return outlook;
  const auto tokens = open_tokens(config);
  const auto vocabulary = vocabulary_of(config).value_or(tokens.encoder.vocab_size);
  const auto options = rows_options(config, tokens, vocabulary);
  const auto seen = data::preview_rows(sources, data::Split::kTrain, options, tokens.audit);
  const auto eval = sources_of(config, data::Split::kEval);
  if (!eval.files.empty()) {
    data::preview_rows(eval, data::Split::kEval, options, tokens.audit);
  }
  outlook.bytes = seen.bytes;
  outlook.tokens = seen.tokens;
  outlook.exact = seen.exact;
  if (seen.rows == 0) return outlook;
  const data::SampleOrder order{.global_batch = global_batch,
                                .seed = options.seed,
                                .drop_last = config.data.dataloader_drop_last};
  const auto count = seen.exact ? count_rows : estimate_rows;
  count(seen, options, order, outlook);
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
