// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// All that changes from step to step, and how it goes to disk and comes back.
//
// The models that train (model_state.h); the rest is trainer_state.json. Randomness needs no state:
// every draw is keyed by seed and step.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "skein/checkpoint/files/manifest.h"
#include "skein/checkpoint/snapshot.h"
#include "skein/core/file.h"
#include "skein/model/model.h"
#include "skein/optim/optimizer.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/model_texts.h"
#include "skein/plan/rates/loss_scaler.h"
#include "skein/plan/trainer_state.h"
#include "skein/train/metric_log.h"
#include "skein/train/model_state.h"

namespace skein::train {

// Whose state it is. All must outlive the RunState.
struct RunParts {
  const plan::HfConfig& architecture;
  const model::Model& model;
  parallel::Sharded& sharded;
  optim::Optimizer& optimizer;
  MetricLog& metrics;
  plan::LossScaler* scaler = nullptr;  // null: none
};

struct RunStateOptions {
  plan::DataIdentity identity;
  std::function<double(int64_t step)> epochs_of;  // that so many steps are
  plan::ModelTexts texts = {};                    // that belong beside the weights
  // Every node saves all by itself, and of that this rank its share. Only where nothing is sharded.
  std::optional<checkpoint::Share> share = {};
  plan::BestMetric best = plan::BestMetric({});  // which of two evaluations is better
  int64_t updates_per_step = 1;                  // at most
};

class RunState {
 public:
  RunState(const RunParts& parts, RunStateOptions options);

  // The model that the checkpoint is of.
  ModelState& policy() { return policy_; }
  // Another model that trains beside it, and must outlive this. Before anything is saved or read.
  void add(ModelState& other);
  // Numbers that belong to the state: asked at every save, given back by restore().
  struct Numbers {
    std::function<std::map<std::string, double>()> ask{};
    std::function<void(const std::map<std::string, double>&)> give{};
  };
  void keep(Numbers numbers) { numbers_ = std::move(numbers); }

  // Without the optimizer a checkpoint cannot be continued, and holds the policy alone.
  checkpoint::Contents contents(int64_t step, bool with_optimizer = true);
  // Returns the step it was saved at; the log follows with restore_log(). Requires that
  // check_continuation() has let it pass.
  int64_t restore(const fs::path& checkpoint);
  // The log as it was at that checkpoint, or empty; rewrites trainer_log.jsonl.
  void restore_log();
  // Weights and moments alone, as they were there; step, data position and log go on.
  void restore_tensors(const fs::path& checkpoint);
  // Those of the policy.
  void restore_weights(const fs::path& checkpoint);
  std::string trainer_state(int64_t step);

  // The best evaluation so far and the step it was made at. Returns whether this one is better.
  bool add_evaluation(int64_t step, double value);
  // That step could not be saved: the best before it is the best again.
  void drop_evaluation(int64_t step);
  // Evaluations up to this step measured another objective.
  int64_t judged_since() const { return judged_since_; }
  std::optional<int64_t> best_step() const {
    return best_ ? std::optional(best_->step) : std::nullopt;
  }

 private:
  ModelState policy_;
  std::vector<ModelState*> others_;
  Numbers numbers_;
  MetricLog& metrics_;
  plan::LossScaler* scaler_;
  const RunStateOptions options_;
  nlohmann::ordered_json saved_history_ = nlohmann::ordered_json::array();
  int64_t saved_tokens_seen_ = 0;
  std::optional<plan::TrainerState::Best> best_, best_before_;
  int64_t judged_since_ = 0;
};

}  // namespace skein::train
