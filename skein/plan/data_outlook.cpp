// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/data_outlook.h"

#include <optional>

#include "skein/data/blocks.h"
#include "skein/data/prepare.h"
#include "skein/data/preview.h"
#include "skein/data/sample_plan.h"
#include "skein/plan/rules.h"
#include "skein/plan/run_model.h"
#include "skein/text/text_codec.h"

namespace skein::plan {
namespace {

std::optional<int64_t> vocabulary_of(const config::RunConfig& config) {
  if (config.model.model_name_or_path.empty()) return std::nullopt;
  return read_run_model(config).dimensions().vocabulary;
}

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

}  // namespace

DataOutlook look_at_data(const config::RunConfig& config, int64_t global_batch) {
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
