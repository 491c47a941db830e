// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/inspect_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/parallel.h"
#include "skein/data/sample_plan.h"

namespace skein::data {
namespace {

// The first ones that training uses.
std::vector<int64_t> first_trained(const RunRowsOptions& options, const SplitRows& rows,
                                   int64_t count) {
  const auto packs = packs_of(options, rows);
  const SampleOrder order{.global_batch = 1, .seed = options.seed};
  const auto plan =
      packs ? SamplePlan(rows.set.count(), packs, order) : SamplePlan(rows.set, order);
  std::vector<int64_t> samples;
  for (int64_t step = 0; std::ssize(samples) < count; ++step) {
    const auto made = plan.step_plan(step);
    samples.insert(samples.end(), made.samples.begin(), made.samples.end());
  }
  samples.resize(static_cast<size_t>(count));
  return samples;
}

std::string packs_text(const RunRowsOptions& options, const SplitRows& train, int64_t tokens) {
  const int64_t packs = packs_of(options, train)->count(0);
  const auto room = static_cast<double>(packs * pack_tokens(options));
  return fmt::format("       {} packs of {} tokens, {:.2f} % full\n", packs, pack_tokens(options),
                     100 * static_cast<double>(tokens) / room);
}

// What people said of the answer, or the answers.
std::string judgement_of(const RowsSource& source, int64_t sample) {
  const auto& rows = source.prepared().rows;
  if (source.kind() == RowKind::kFeedback) {
    return is_desirable(rows.entry(source.answer_of(sample))) ? ": desirable" : ": undesirable";
  }
  if (source.kind() != RowKind::kPairs) return "";
  const auto margin = margin_of(rows.entry(source.answer_of(sample, 1)));
  return margin ? fmt::format(": margin {:g}", *margin) : "";
}

}  // namespace

RowsDescription describe_rows(const RunRows& rows, const RunRowsOptions& options,
                              const AuditOptions& tokens) {
  RowsDescription result;
  const int threads = num_threads(options.data.preprocessing_num_workers);
  const auto describe = [&](const SplitRows& split_rows, Split split) {
    const auto audit = audit_labels(split_rows, tokens, threads);
    const auto& prepared = split_rows.source->prepared();
    result.text += audit.text(split);
    if (options.packing && split == Split::kTrain) {
      result.text += packs_text(options, split_rows, audit.tokens);
    }
    if (prepared.bad_rows > 0) {
      result.text += fmt::format("       {} bad rows left out\n", prepared.bad_rows);
    }
    result.text += fmt::format("       {}\n", prepared.prepared_file.string());
    if (!result.refusal) result.refusal = audit.refusal(split);
  };
  describe(rows.train, Split::kTrain);
  if (rows.eval) describe(*rows.eval, Split::kEval);
  return result;
}

std::string inspect_rows(const RunRowsOptions& options, const InspectOptions& shown,
                         const Decode& decode) {
  const auto run = open_run_rows(options);
  const bool is_train = shown.split == Split::kTrain;
  if (!is_train && !run.eval) {
    throw UserError(
        "this configuration has no evaluation data: give eval_file, validation_file_dir or "
        "val_size");
  }
  const auto& rows = is_train ? run.train : *run.eval;
  const int64_t count = std::min(shown.rows, rows.set.count());
  std::vector<int64_t> samples;
  if (is_train) samples = first_trained(options, rows, count);
  for (int64_t i = 0; !is_train && i < count; ++i) samples.push_back(rows.set.sample(i));
  std::string text;
  for (const int64_t sample : samples) {
    text += rows.source->place_of(sample) + judgement_of(*rows.source, sample) + "\n" +
            sample_text(*rows.source, sample, decode, shown.marks);
  }
  return text;
}

}  // namespace skein::data
