// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// All that changes from step to step, and how it goes to disk and comes back.
//
// Weights and moments travel as slices by name; the rest is trainer_state.json. Randomness needs no
// state: every draw is keyed by seed and step.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
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
  // With an adapter_config, files hold the adapter alone, under PEFT's names and in fp32.
  plan::DataIdentity identity;
  std::function<double(int64_t step)> epochs_of;  // that so many steps are
  plan::ModelTexts texts = {};                    // that belong beside the weights
  // Every node saves all by itself, and of that this rank its share. Only where nothing is sharded.
  std::optional<checkpoint::Share> share = {};
  plan::BestMetric best = plan::BestMetric({});  // which of two evaluations is better
};

class RunState {
 public:
  RunState(const RunParts& parts, RunStateOptions options);

  // Do its files hold an adapter alone?
  bool has_master(const tensor::Parameter& parameter) const;
  // On some rank: this one's shard may be padding alone.
  bool has_masters() const;
  bool is_adapter() const { return !options_.identity.tuning.adapter_config.empty(); }

  // First weights: keyed by the seed, or from a model folder (a head that scores, which that lacks,
  // by the seed). Whatever is read, here and below, a
  // rank reads its shard of; the rest comes from the other ranks: collective.
  void initialise(uint64_t seed);
  void load_weights(const fs::path& folder, uint64_t seed);
  // The same beside the weights of the base.
  void initialise_adapter(uint64_t seed);
  void load_adapter(const fs::path& folder);

  // Without the optimizer a checkpoint cannot be continued.
  checkpoint::Contents contents(int64_t step, bool with_optimizer = true);
  // Returns the step it was saved at; the log follows with restore_log(). Requires that
  // check_continuation() has let it pass.
  int64_t restore(const fs::path& checkpoint);
  // The log as it was at that checkpoint, or empty; rewrites trainer_log.jsonl.
  void restore_log();
  // Weights and moments alone, as they were there; step, data position and log go on.
  void restore_tensors(const fs::path& checkpoint);
  void restore_weights(const fs::path& checkpoint);
  std::string trainer_state(int64_t step);

  // The best evaluation so far and the step it was made at. Returns whether this one is better.
  bool add_evaluation(int64_t step, double value);
  // That step could not be saved: the best before it is the best again.
  void drop_evaluation(int64_t step);
  std::optional<int64_t> best_step() const {
    return best_ ? std::optional(best_->step) : std::nullopt;
  }

 private:
  void check_base_in_adapter(const fs::path& folder);
  const char* stem() const;
  // What the model's files hold, and of it this rank's slices under the names there.
  std::vector<checkpoint::TensorEntry> model_entries() const;
  std::vector<tensor::TensorSlice> in_files(std::vector<tensor::TensorSlice> slices) const;
  std::vector<tensor::TensorSlice> with_masters(std::vector<tensor::TensorSlice> weights,
                                                std::vector<tensor::TensorSlice> states) const;
  std::vector<checkpoint::TensorEntry> optimizer_entries() const;
  void round_masters();

  const plan::HfConfig& architecture_;
  const model::Model& model_;
  parallel::Sharded& sharded_;
  optim::Optimizer& optimizer_;
  MetricLog& metrics_;
  plan::LossScaler* scaler_;
  const RunStateOptions options_;
  nlohmann::ordered_json saved_history_ = nlohmann::ordered_json::array();
  int64_t saved_tokens_seen_ = 0;
  std::optional<plan::TrainerState::Best> best_, best_before_;
};

}  // namespace skein::train
