// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/judge.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/plan/run_data.h"
#include "skein/tensor/batch.h"
#include "skein/train/online/documents.h"

namespace skein::train {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kModelName = "reward_model";

// Weights are those of the functions, then the model's, then the program's.
size_t place_of_model(const config::RewardConfig& config) { return config.reward_funcs.size(); }

// Null where the model alone judges.
std::unique_ptr<rewards::Scorer> make_scorer(const Session& run) {
  const auto& config = run.config.reward;
  if (config.reward_funcs.empty() && config.reward_program.empty()) return nullptr;
  using enum rewards::Unscored;
  rewards::Options options{.functions = config.reward_funcs,
                           .program = config.reward_program,
                           .weights = config.reward_weights,
                           .unscored = config.skip_unscored ? kSkip : kStop,
                           .timeout_seconds = static_cast<double>(config.reward_timeout),
                           .max_turns = static_cast<int>(config.max_turns),
                           .stop_requested = run.world.stop_requested};
  if (!config.reward_model.empty()) {
    options.needs_opinion = false;  // the model has one on everything
    auto& weights = options.weights;
    if (!weights.empty()) {
      weights.erase(weights.begin() + static_cast<ptrdiff_t>(place_of_model(config)));
    }
  }
  return std::make_unique<rewards::Scorer>(std::move(options));
}

double model_weight(const config::RewardConfig& config) {
  if (config.reward_model.empty() || config.reward_weights.empty()) return 1;
  return config.reward_weights.at(place_of_model(config));
}

// Those with these places.
std::vector<rewards::Completion> completions_of(const Prompts& prompts,
                                                std::span<const Sampled> samples,
                                                std::span<const size_t> places) {
  std::vector<rewards::Completion> completions;
  for (const auto place : places) {
    const auto& sample = samples[place];
    const auto at = static_cast<size_t>(sample.prompt);
    completions.push_back({.prompt = prompts.texts[at],
                           .text = sample.text,
                           .row = prompts.rows[at],
                           .num_tokens = sample.num_own(),
                           .finished = sample.finished,
                           .place = prompts.places[at],
                           .sample = static_cast<uint64_t>(prompts.samples[at]),
                           .generation = sample.generation,
                           .turn = sample.turn});
  }
  return completions;
}

// Each rank has a program of its own. Collective; throws UserError.
void require_alike(rewards::Scorer& scorer, comm::Group& group) {
  const auto own = fmt::format("{} weighed {}", fmt::join(scorer.names(), ", "),
                               fmt::join(scorer.weights(), ", "));
  std::vector<int64_t> all(static_cast<size_t>(group.size()));
  all[static_cast<size_t>(group.rank())] = static_cast<int64_t>(std::hash<std::string>{}(own) >> 1);
  all = group.sum(all);
  const auto other = std::ranges::adjacent_find(all, std::not_equal_to());
  if (other == all.end()) return;
  throw UserError(fmt::format(
      "reward_program calls or weighs its rewards otherwise on rank {} than on rank {}; on rank {} "
      "they are {}: they must be the same on every rank",
      other - all.begin() + 1, other - all.begin(), group.rank(), own));
}

// So many on the rank that has most.
int64_t most_of(int64_t own, comm::Group& group) {
  std::vector<int64_t> counts(static_cast<size_t>(group.size()));
  counts[static_cast<size_t>(group.rank())] = own;
  return std::ranges::max(group.sum(counts));
}

std::string place_of(const Prompts& prompts, const Sampled& sample) {
  return fmt::format("sample {}, generation {}",
                     prompts.samples[static_cast<size_t>(sample.prompt)], sample.generation);
}

at::Tensor last_tokens(const tensor::HostBatch& batch, at::Device device) {
  std::vector<int64_t> last(batch.document_ends.begin(), batch.document_ends.end());
  for (auto& end : last) --end;
  return at::from_blob(last.data(), {std::ssize(last)}, at::kLong).clone().to(device);
}

}  // namespace

Judge::Judge(Session& run)
    : run_(run),
      scorer_(make_scorer(run)),
      model_(open_reward_model(run)),
      model_weight_(model_weight(run.config.reward)) {
  if (model_) turn_end_ = plan::open_tokens(run.config).turn_end;
}

const std::vector<std::string>& Judge::names() {
  if (names_.empty()) {
    if (scorer_) names_ = scorer_->names();
    if (scorer_) require_alike(*scorer_, run_.world.group);
    if (model_) names_.emplace_back(kModelName);
  }
  return names_;
}

bool Judge::score(const Prompts& prompts, std::span<const Sampled> samples,
                  std::span<const size_t> asked, Verdict& verdict,
                  std::vector<Reply>& replies) try {
  const auto completions = completions_of(prompts, samples, asked);
  auto scores = scorer_->score(completions);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (!scores.messages[i].empty()) {
      replies.push_back({asked[i], std::move(scores.messages[i])});
      continue;
    }
    const double otherwise = model_ && !scores.skipped[i] ? 0 : kNothing;
    verdict.totals[asked[i]] = scores.totals[i].value_or(otherwise);
    for (size_t k = 0; k < scores.parts.size(); ++k) {
      verdict.rewards[k][asked[i]] = scores.parts[k][i].value_or(kNothing);
    }
  }
  return true;
} catch (const Stopped&) {
  return false;
}

bool Judge::ask_scorer(const Prompts& prompts, std::span<const Sampled> samples, const GoOn& go_on,
                       Verdict& verdict) {
  auto& group = run_.world.group;
  if (!scorer_) return true;
  verdict.rewards.assign(scorer_->names().size(), std::vector<double>(samples.size(), kNothing));
  std::vector<size_t> asked(samples.size());
  std::iota(asked.begin(), asked.end(), size_t{0});
  for (bool goes_on = true;;) {
    std::vector<Reply> replies;
    const bool is_done = goes_on && score(prompts, samples, asked, verdict, replies);
    if (group.sum(int64_t{!is_done}) > 0) return false;
    if (!go_on || group.sum(std::ssize(replies)) == 0) return true;
    goes_on = go_on(replies);
    asked.clear();
    for (const auto& reply : replies) asked.push_back(reply.sample);
  }
}

std::optional<Verdict> Judge::judge(const Prompts& prompts, std::span<const Sampled> samples,
                                    const GoOn& go_on) {
  const board::HostWork work("scoring completions");
  Verdict verdict{.totals = std::vector<double>(samples.size(), 0)};
  if (!ask_scorer(prompts, samples, go_on, verdict)) return std::nullopt;
  if (!model_) return verdict;
  auto scores = scores_of_model(prompts, samples);
  for (size_t i = 0; i < scores.size(); ++i) verdict.totals[i] += model_weight_ * scores[i];
  verdict.rewards.push_back(std::move(scores));
  return verdict;
}

// Prompt and completion as the policy reads them, and what the template prints behind the end of a
// turn: the score stands at the last token of what the model was trained on.
std::vector<int64_t> Judge::own_tokens(const Prompts& prompts, const Sampled& sample) const {
  auto tokens = prompts.tokens[static_cast<size_t>(sample.prompt)];
  tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
  if (turn_end_.token && !sample.tokens.empty() && sample.tokens.back() == *turn_end_.token) {
    tokens.insert(tokens.end(), turn_end_.behind.begin(), turn_end_.behind.end());
  }
  return tokens;
}

// As another tokenizer reads the same text, with its own end where it is no turn's.
std::vector<int64_t> Judge::tokens_anew(const Prompts& prompts, const Sampled& sample) const {
  const auto& codec = *model_->codec;
  auto text = prompts.texts[static_cast<size_t>(sample.prompt)] + sample.text;
  if (sample.finished) text += turn_end_.printed;
  std::vector<uint32_t> ids;
  codec.encode(text, ids);
  const auto end = codec.end();
  if (end && sample.finished && turn_end_.printed.empty()) ids.push_back(*end);
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> Judge::text_for_model(const Prompts& prompts, const Sampled& sample) const {
  if (!model_->codec) return own_tokens(prompts, sample);
  auto tokens = tokens_anew(prompts, sample);
  const auto most = model_->model->max_positions();
  if (std::ssize(tokens) <= most && !tokens.empty()) return tokens;
  throw UserError(
      fmt::format("the reward model {} reads {} tokens in {}, and knows {} positions: lower "
                  "max_prompt_length or max_completion_length",
                  run_.config.reward.reward_model, tokens.size(), place_of(prompts, sample), most));
}

std::vector<double> Judge::scores_of_model(const Prompts& prompts,
                                           std::span<const Sampled> samples) {
  const at::NoGradGuard no_grad;
  const auto hold = model_->sharded->hold_roots();
  const auto each = static_cast<size_t>(run_.batches.per_device);
  const int64_t own = (std::ssize(samples) + run_.batches.per_device - 1) / run_.batches.per_device;
  std::vector<double> all;
  for (int64_t pass = 0, count = most_of(own, run_.world.group); pass < count; ++pass) {
    const auto first = std::min(static_cast<size_t>(pass) * each, samples.size());
    const auto some = samples.subspan(first, std::min(each, samples.size() - first));
    std::vector<std::vector<int64_t>> texts;
    for (const auto& sample : some) texts.push_back(text_for_model(prompts, sample));
    const auto host = to_judge(texts);
    const auto batch = tensor::to_device(host, run_.world.device);
    const auto hidden = model_->model->forward(batch, {.training = false}, *model_->sharded);
    const auto scores =
        model_->model->head_scores(hidden, last_tokens(host, run_.world.device), *model_->sharded)
            .to(at::kCPU, at::kDouble);
    for (size_t i = 0; i < some.size(); ++i) {
      const double score = scores.data_ptr<double>()[i];
      if (!std::isfinite(score)) {
        throw UserError(fmt::format("the reward model {} gives {} to {}",
                                    run_.config.reward.reward_model, score,
                                    place_of(prompts, some[i])));
      }
      all.push_back(score);
    }
  }
  return all;
}

}  // namespace skein::train
