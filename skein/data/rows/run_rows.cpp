// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/run_rows.h"

#include <fmt/format.h>

#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/data/rows/pair_source.h"
#include "skein/data/source_files.h"

namespace skein::data {
namespace {

constexpr double kDefaultHeldOut = 0.05;

bool has_eval_rows(const config::DataConfig& data) {
  return !find_row_sources(data, Split::kEval).files.empty();
}

std::shared_ptr<const RowsSource> open_split(const RunRowsOptions& options, Split split) {
  auto prepared = prepare_rows(options.data, options.encoder, split);
  if (static_cast<int64_t>(prepared.largest_token) >= options.vocab_size) {
    throw UserError(
        fmt::format("the {} data has a token with id {}, but the model's vocab_size is {}; give a "
                    "tokenizer_name_or_path that fits the model, or resize_vocab",
                    split_name(split), prepared.largest_token, options.vocab_size));
  }
  return source_of(std::move(prepared), options.limits);
}

SampleSet at_most(const SampleSet& set, const std::optional<int64_t>& limit) {
  return limit ? set.first(*limit) : set;
}

const char* order_name(const RunRowsOptions& options) {
  if (options.packing) return "packed";
  return options.group_by_length ? "grouped" : "alone";
}

// Words that no new kind moves: digests are stored with checkpoints.
std::string kind_words(const RunRowsOptions& options) {
  switch (options.encoder.kind) {
    case RowKind::kRows:
      return "rows";
    case RowKind::kPairs:
      return "pairs, equal ones " + config::to_text(options.limits.equal_pairs) + ",";
    case RowKind::kFeedback:
      return "feedback";
    case RowKind::kPrompts:
      break;
  }
  return "prompts";
}

}  // namespace

ChosenSamples chosen_samples(const SplitRows& rows) {
  ChosenSamples chosen{.source = rows.source, .set = rows.set};
  if (rows.source->kind() == RowKind::kFeedback) {
    chosen.mismatched = mismatched_of(std::static_pointer_cast<const FeedbackSource>(rows.source));
  }
  return chosen;
}

int64_t pack_tokens(const RunRowsOptions& options) {
  return answers_of(options.encoder.kind) * options.limits.cutoff_len;
}

double held_out_rows(const RunRowsOptions& options) {
  if (has_eval_rows(options.data)) return 0;
  if (options.val_size != 0) return options.val_size;
  return options.evaluates ? kDefaultHeldOut : 0;
}

SplitRows open_eval_rows(const RunRowsOptions& options) {
  const auto eval = open_split(options, Split::kEval);
  return {.source = eval, .set = at_most(SampleSet(eval->count()), options.data.max_eval_samples)};
}

SampleSet trained_rows(const RunRowsOptions& options, int64_t count) {
  return at_most(rows_of_split(count, held_out_rows(options), options.seed, Holdout::kKept),
                 options.data.max_train_samples);
}

RunRows open_run_rows(const RunRowsOptions& options) {
  const auto train = open_split(options, Split::kTrain);
  RunRows run{.train = {.source = train, .set = trained_rows(options, train->count())},
              .eval = std::nullopt};
  const double val_size = held_out_rows(options);
  if (has_eval_rows(options.data)) {
    run.eval = open_eval_rows(options);
  } else if (val_size > 0) {
    const auto held_out = rows_of_split(train->count(), val_size, options.seed, Holdout::kHeldOut);
    run.eval = {.source = train,
                .set = at_most(held_out, options.data.max_eval_samples),
                .is_held_out = true};
  }
  return run;
}

std::shared_ptr<const Packs> packs_of(const RunRowsOptions& options, RowOrder::LengthOf length_of,
                                      const SampleSet& set) {
  if (!options.packing && !options.group_by_length) return nullptr;
  const int64_t capacity = options.packing ? pack_tokens(options) : 0;
  return std::make_shared<const RowOrder>(
      std::move(length_of), set, RowOrderOptions{.seed = options.seed, .capacity = capacity});
}

std::shared_ptr<const Packs> packs_of(const RunRowsOptions& options, const SplitRows& train) {
  return packs_of(options, lengths_of(train.source), train.set);
}

RunSamples open_rows(const RunRowsOptions& asked) {
  auto options = asked;
  options.data.overwrite_cache = false;
  const auto run = open_run_rows(options);
  RunSamples samples{.train = chosen_samples(run.train),
                     .eval = std::nullopt,
                     .packs = packs_of(options, run.train),
                     .are_runs = true,
                     .digest = {}};
  if (options.evaluates) samples.eval = chosen_samples(*run.eval);
  const auto& limits = options.limits;
  samples.digest = digest(fmt::format(
      "{} {} cutoff_len {} excess {} {} held_out {} samples {}{}", kind_words(options),
      run.train.source->prepared().digest, limits.cutoff_len, config::to_text(limits.excess_length),
      order_name(options), held_out_rows(options), run.train.set.count(),
      options.data.dataloader_drop_last ? " drop_last" : ""));
  return samples;
}

}  // namespace skein::data
