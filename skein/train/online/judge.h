// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What are completions worth? Reward functions, a program, a model: the weighted sum of what they
// say.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/rewards/scorer.h"
#include "skein/text/turn_end.h"
#include "skein/train/online/players.h"
#include "skein/train/online/prompts.h"
#include "skein/train/online/replies.h"
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

  // As metrics call them. The first call starts the reward program and is collective: it throws
  // UserError where ranks do not agree.
  const std::vector<std::string>& names();
  // Lets completions that were replied to go on; false: asked to stop. Collective.
  using GoOn = std::function<bool(std::span<const Reply>)>;
  // Nothing when a rank was asked to stop meanwhile. `go_on` changes `samples`; without it nothing
  // is replied to. Collective. Throws UserError for rewards that are no numbers.
  std::optional<Verdict> judge(const Prompts& prompts, std::span<const Sampled> samples,
                               const GoOn& go_on = {});

 private:
  std::vector<int64_t> own_tokens(const Prompts& prompts, const Sampled& sample) const;
  std::vector<int64_t> tokens_anew(const Prompts& prompts, const Sampled& sample) const;
  std::vector<int64_t> text_for_model(const Prompts& prompts, const Sampled& sample) const;
  // Both false: asked to stop. The second one is of some of them, and says which were replied to.
  bool ask_scorer(const Prompts& prompts, std::span<const Sampled> samples, const GoOn& go_on,
                  Verdict& verdict);
  bool score(const Prompts& prompts, std::span<const Sampled> samples,
             std::span<const size_t> asked, Verdict& verdict, std::vector<Reply>& replies);
  std::vector<double> scores_of_model(const Prompts& prompts, std::span<const Sampled> samples);

  Session& run_;
  std::unique_ptr<rewards::Scorer> scorer_;  // null: the model alone judges
  std::unique_ptr<RewardModel> model_;       // null: none
  text::TurnEnd turn_end_;                   // of what the model has been trained on
  double model_weight_ = 1;
  std::vector<std::string> names_;
};

}  // namespace skein::train
