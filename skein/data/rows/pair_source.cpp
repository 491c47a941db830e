// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/pair_source.h"

#include <algorithm>
#include <utility>

#include "skein/core/error.h"
#include "skein/data/rows/prompt_source.h"

namespace skein::data {
namespace {

class MismatchedSource final : public SampleSource {
 public:
  explicit MismatchedSource(std::shared_ptr<const FeedbackSource> source)
      : source_(std::move(source)), rows_(source_->prepared().rows) {
    // Several answers to one prompt stand behind each other as a rule.
    int64_t other = count() - 1;
    while (other > 0 && have_one_prompt(other, 0)) --other;
    for (int64_t sample = 0; sample < count(); ++sample) {
      if (sample > 0 && !have_one_prompt(sample - 1, sample)) other = sample - 1;
      before_.push_back(other);
    }
  }

  int64_t count() const override { return source_->count(); }

  int64_t length(int64_t sample) const override {
    const auto joined = join(sample);
    return joined.prompt + joined.completion;
  }

  int64_t num_targets(int64_t sample) const override {
    const auto joined = join(sample);
    int64_t targets = 0;
    for (int64_t i = 0; i < joined.completion; ++i) {
      targets += rows_.is_trained(joined.other, joined.begin + i);
    }
    return targets;
  }

  void read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    const auto joined = join(sample);
    SKEIN_CHECK(
        std::ssize(tokens) == joined.prompt + joined.completion && tokens.size() == targets.size(),
        "a sample is read as a whole");
    const auto prompt = static_cast<size_t>(joined.prompt);
    rows_.read(joined.own, tokens.first(prompt));
    rows_.read(joined.other, tokens.subspan(prompt), joined.begin);
    std::ranges::fill(targets, tensor::kIgnore);
    for (int64_t i = 0; i < joined.completion; ++i) {
      if (!rows_.is_trained(joined.other, joined.begin + i)) continue;
      const auto at = prompt + static_cast<size_t>(i);
      targets[at - 1] = tokens[at];
    }
  }

  tensor::Counts counts_of(int64_t sample) const override {
    return {.targets = num_targets(sample),
            .samples = 1,
            .desirable = source_->is_desirable(sample) ? 1 : 0};
  }

  std::shared_ptr<const tensor::HostAnswers> answers(
      std::span<const int64_t> samples) const override {
    return source_->answers(samples);
  }

 private:
  struct Joined {
    int64_t own = 0, other = 0;  // answers
    int64_t prompt = 0;          // ids of own
    int64_t begin = 0;           // of the other's completion
    int64_t completion = 0;      // ids of it
  };

  // A prompt is at least one id long, and shorter than cutoff_len: something behind it is trained
  // on (see RowArray).
  Joined join(int64_t sample) const {
    const int64_t before = before_[static_cast<size_t>(sample)];
    Joined joined{.own = source_->answer_of(sample), .other = source_->answer_of(before)};
    const int64_t most = source_->limits().cutoff_len;
    joined.prompt = std::min(prompt_ids(rows_.entry(joined.own)), most);
    joined.begin = prompt_ids(rows_.entry(joined.other));
    joined.completion =
        std::min(int64_t{rows_.entry(joined.other).length} - joined.begin, most - joined.prompt);
    return joined;
  }

  bool have_one_prompt(int64_t sample, int64_t other) const {
    const auto one = source_->answer_of(sample), two = source_->answer_of(other);
    const auto length = prompt_ids(rows_.entry(one));
    return length == prompt_ids(rows_.entry(two)) && rows_.begin_alike(one, two, length);
  }

  std::shared_ptr<const FeedbackSource> source_;
  const RowArray& rows_;         // the source's
  std::vector<int64_t> before_;  // of each sample, the one whose answer it takes
};

}  // namespace

tensor::Counts PairSource::counts_of(int64_t sample) const {
  const int64_t chosen = kept_targets(answer_of(sample, 0));
  return {.targets = chosen + kept_targets(answer_of(sample, 1)),
          .samples = 1,
          .chosen_targets = chosen};
}

std::shared_ptr<const tensor::HostAnswers> PairSource::answers(
    std::span<const int64_t> samples) const {
  auto answers = std::make_shared<tensor::HostAnswers>();
  answers->samples.assign(samples.begin(), samples.end());
  bool has_margin = false;
  for (int64_t i = 0; i < std::ssize(samples); ++i) {
    answers->documents.insert(answers->documents.end(), {2 * i, 2 * i + 1});
    const auto rejected = answer_of(samples[static_cast<size_t>(i)], 1);
    const auto margin = margin_of(prepared().rows.entry(rejected));
    has_margin = has_margin || margin;
    answers->margins.push_back(margin.value_or(0));
  }
  if (!has_margin) answers->margins.clear();
  return answers;
}

int64_t PairSource::shared_tokens(int64_t sample) const {
  const int64_t chosen = answer_of(sample, 0);
  return std::min(
      {shared_ids(prepared().rows.entry(chosen)), kept_length(chosen), kept_length(chosen + 1)});
}

bool FeedbackSource::is_desirable(int64_t sample) const {
  return data::is_desirable(prepared().rows.entry(answer_of(sample)));
}

tensor::Counts FeedbackSource::counts_of(int64_t sample) const {
  return {.targets = num_targets(sample), .samples = 1, .desirable = is_desirable(sample) ? 1 : 0};
}

std::shared_ptr<const tensor::HostAnswers> FeedbackSource::answers(
    std::span<const int64_t> samples) const {
  auto answers = std::make_shared<tensor::HostAnswers>();
  answers->alone = true;
  answers->samples.assign(samples.begin(), samples.end());
  for (const int64_t sample : samples) {
    answers->documents.push_back(std::ssize(answers->documents));
    answers->desirable.push_back(is_desirable(sample) ? 1 : 0);
  }
  return answers;
}

std::shared_ptr<const SampleSource> mismatched_of(std::shared_ptr<const FeedbackSource> source) {
  return std::make_shared<const MismatchedSource>(std::move(source));
}

std::shared_ptr<const RowsSource> source_of(PreparedRows rows, const RowLimits& limits) {
  switch (rows.kind) {
    case RowKind::kRows:
      return std::make_shared<const RowSource>(std::move(rows), limits);
    case RowKind::kPairs:
      return std::make_shared<const PairSource>(std::move(rows), limits);
    case RowKind::kFeedback:
      return std::make_shared<const FeedbackSource>(std::move(rows), limits);
    case RowKind::kPrompts:
      break;
  }
  return std::make_shared<const PromptSource>(std::move(rows), limits);
}

}  // namespace skein::data
