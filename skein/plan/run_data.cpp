// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/run_data.h"

#include <algorithm>

#include "skein/core/parallel.h"
#include "skein/data/prepare.h"
#include "skein/plan/preferences.h"
#include "skein/plan/rules.h"
#include "skein/plan/run_model.h"

namespace skein::plan {
namespace {

// Held out: below 1 a share of the rows, else so many.
double val_size(const config::DataConfig& data) {
  if (data.validation_rows > 0) return static_cast<double>(data.validation_rows);
  return data.validation_split_percentage / 100;
}

// What kto compares with; the other losses have no use for it.
bool wants_mismatched(const config::RunConfig& config) {
  return std::ranges::count(losses_of(config), config::PreferenceLoss::kKto) > 0;
}

std::string prepare_rows(const config::RunConfig& config) {
  const auto tokens = open_tokens(config);
  const auto rows = data::open_run_rows(rows_options(config, tokens, *vocabulary_of(config)));
  data::require_labels(rows, tokens.audit, num_threads(config.data.preprocessing_num_workers));
  const auto& train = rows.train.source->prepared().digest;
  return rows.eval ? train + rows.eval->source->prepared().digest : train;
}

}  // namespace

data::RowTokens open_tokens(const config::RunConfig& config) {
  auto tokens = data::open_row_tokens(config.model, config.rows, row_kind(config.stage));
  tokens.audit.scores = config.stage == config::TrainingStage::kReward;
  tokens.audit.chosen_weight = config.preference.kto_chosen_weight;
  tokens.audit.rejected_weight = config.preference.kto_rejected_weight;
  return tokens;
}

bool trains_on_rows(const config::RunConfig& config) {
  return config.stage != config::TrainingStage::kPretrain;
}

std::string length_key(const config::Resolved& resolved) {
  if (config::is_online(resolved.config.stage)) return "max_prompt_length";
  auto typed = resolved.origin_of("block_size").spelling;
  if (!typed.empty()) return typed;
  const bool is_given = resolved.origins.contains("block_size");
  return trains_on_rows(resolved.config) && !is_given ? "cutoff_len" : "block_size";
}

std::optional<int64_t> vocabulary_of(const config::RunConfig& config) {
  if (config.model.model_name_or_path.empty()) return std::nullopt;
  return read_run_model(config).dimensions().vocabulary;
}

data::Sources sources_of(const config::RunConfig& config, data::Split split) {
  return trains_on_rows(config) ? data::find_row_sources(config.data, split)
                                : data::find_sources(config.data, split);
}

namespace {

data::ExcessLength excess_of(config::LongPrompts asked) {
  using enum config::LongPrompts;
  return asked == kDrop    ? data::ExcessLength::kDrop
         : asked == kError ? data::ExcessLength::kError
                           : data::ExcessLength::kTruncate;
}

data::RowLimits limits_of(const config::RunConfig& config) {
  if (!config::is_online(config.stage)) {
    return {.cutoff_len = config.data.block_size,
            .excess_length = config.rows.excess_length_strategy,
            .equal_pairs = config.preference.equal_pairs};
  }
  constexpr int64_t kAnyLength = INT32_MAX;
  const auto most = config.rollout.max_prompt_length;
  return {.cutoff_len = most > 0 ? most : kAnyLength,
          .excess_length = excess_of(config.rollout.long_prompts)};
}

}  // namespace

data::RunRowsOptions rows_options(const config::RunConfig& config, const data::RowTokens& tokens,
                                  int64_t vocabulary) {
  const bool online = config::is_online(config.stage);
  return {.data = config.data,
          .encoder = tokens.encoder,
          .limits = limits_of(config),
          .packing = config.rows.packing && !online,
          .group_by_length = config.rows.group_by_length && !online,
          .val_size = val_size(config.data),
          .evaluates = evaluates(config),
          .seed = data_seed(config),
          .vocab_size = vocabulary};
}

std::string prepare_data(const config::RunConfig& config) {
  return trains_on_rows(config) ? prepare_rows(config) : data::prepare_run(config).digest();
}

data::RunSamples open_samples(const config::RunConfig& config, const HfConfig& model) {
  const auto vocabulary = model.dimensions().vocabulary;
  if (trains_on_rows(config)) {
    auto samples = data::open_rows(rows_options(config, open_tokens(config), vocabulary));
    samples.share_prompts = shares_prompts(config, model);
    if (!wants_mismatched(config)) {
      samples.train.mismatched.reset();
      if (samples.eval) samples.eval->mismatched.reset();
    }
    return samples;
  }
  return data::open_blocks({.data = config.data,
                            .model = config.model,
                            .evaluates = evaluates(config),
                            .seed = data_seed(config),
                            .vocab_size = vocabulary});
}

data::RunSamples open_eval_samples(const config::RunConfig& config, const HfConfig& model) {
  if (!trains_on_rows(config)) {
    auto both = config;
    both.data.train_file = config.data.eval_file;
    return open_samples(both, model);
  }
  const auto rows = data::open_eval_rows(
      rows_options(config, open_tokens(config), model.dimensions().vocabulary));
  const data::ChosenSamples chosen{.source = rows.source, .set = rows.set};
  return {.train = chosen,
          .eval = chosen,
          .packs = nullptr,
          .are_runs = true,
          .share_prompts = shares_prompts(config, model),
          .digest = {}};
}

}  // namespace skein::plan
