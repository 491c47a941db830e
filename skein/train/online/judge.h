// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What are completions worth? Reward functions, a program, a model: the weighted sum of what they
// say.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/rewards/scorer.h"
#include "skein/text/turn_end.h"
#include "skein/train/online/players.h"
#include "skein/train/online/prompts.h"
#include "skein/train/online/sample.h"
#include "skein/train/session.h"

namespace skein::train {

// Of this rank's completions, in their order.
struct Verdict {
  std::vector<double> totals;  // not a number: not to be learnt from
  // Of each of Judge::names(); not a number: it says nothing of that completion.
  std::vector<std::vector<double>> rewards;
};

class Judge {
 public:
  // Collective: reads the reward model. `run` must outlive it. Throws UserError for rewards that do
  // not exist.
  explicit Judge(Session& run);

  // As metrics call them. Starts the reward program.
  const std::vector<std::string>& names();
  // Nothing when a rank was asked to stop meanwhile. Collective. Throws UserError for rewards that
  // are no numbers.
  std::optional<Verdict> judge(const Prompts& prompts, std::span<const Sampled> samples);

 private:
  std::vector<int64_t> own_tokens(const Prompts& prompts, const Sampled& sample) const;
  std::vector<int64_t> tokens_anew(const Prompts& prompts, const Sampled& sample) const;
  std::vector<int64_t> text_for_model(const Prompts& prompts, const Sampled& sample) const;
  // False: it was asked to stop.
  bool ask_scorer(std::span<const rewards::Completion> completions, Verdict& verdict);
  std::vector<double> scores_of_model(const Prompts& prompts, std::span<const Sampled> samples);

  Session& run_;
  std::unique_ptr<rewards::Scorer> scorer_;  // null: the model alone judges
  std::unique_ptr<RewardModel> model_;       // null: none
  text::TurnEnd turn_end_;                   // of what the model has been trained on
  double model_weight_ = 1;
  std::vector<std::string> names_;
};

}  // namespace skein::train
