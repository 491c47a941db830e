// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// trainer_state.json: how far a run is, written beside every model that it saves.
//
// All keys are fields of Hugging Face's TrainerState, which refuses others: ours are kept where it
// keeps the state of what is attached to a run.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/plan/rates/loss_scaler.h"

namespace skein::plan {

inline constexpr const char* kStateFile = "trainer_state.json";

// What trains, and beside what.
struct TuningIdentity {
  std::string type = "full";   // finetuning_type; of freeze, with its keys
  std::string base;            // of an adapter: model_name_or_path
  std::string base_digest;     // of its weights: checkpoint::weights_digest()
  std::string adapter_config;  // of an adapter: the text of its file, which holds it
};

// What answers are compared with.
struct ReferenceIdentity {
  std::string folder;
  std::string digest;  // of its weights; empty: there is no reference with weights of its own
};

// What must not change between starts of one run, because the data order depends on it, or what the
// optimizer's states belong to; the steps may.
struct DataIdentity {
  std::string stage;        // as the key says it; empty: an older program did not note it
  std::string objective;    // what an evaluation's loss measures; likewise. It may change
  std::string data_digest;  // empty: the data has not been read
  int64_t global_batch = 0;
  int64_t seed = 0;        // data_seed
  int64_t block_size = 0;  // 0: an older program did not note it
  int64_t total_steps = 0;
  // Not kept.
  int64_t ranks = 0;
  std::string block_size_key = "block_size";  // as the user spells it: cutoff_len, …
  bool counts_prompts = false;                // global_batch: those of a step
  // Not kept: the tensors tell.
  config::OptimizerKind optim = config::OptimizerKind::kAdamW;
  bool pure_bf16 = false;
  TuningIdentity tuning = {};
  ReferenceIdentity reference = {};
};

struct TrainerState {
  int64_t step = 0;
  double epoch = 0;  // epochs done; not read back
  int64_t tokens_seen = 0;
  int64_t num_updates = 0;       // of the optimizer
  int64_t updates_per_step = 1;  // at most
  DataIdentity identity;

  struct Best {
    double value = 0;
    int64_t step = 0;
    std::string metric = "eval_loss";  // BestMetric::name()
  };
  std::optional<Best> best;
  int64_t judged_since = 0;  // evaluations up to this step measured another objective
  std::optional<LossScaleState> loss_scale;  // of a run in float16
  std::map<std::string, double> numbers;     // whatever else a loop keeps, by name
  nlohmann::ordered_json history = nlohmann::ordered_json::array();  // of the log
};

std::string trainer_state_text(const TrainerState& state);
// Throws IoError when the folder has none, or none that this program wrote.
TrainerState read_trainer_state(const fs::path& folder);
// Nothing instead.
std::optional<TrainerState> find_trainer_state(const fs::path& folder);

// The last step whose evaluations say nothing about what a run with this objective measures.
int64_t judged_since(const TrainerState& state, const std::string& objective);

// What makes an evaluation better than another.
struct BestMetric {
  std::string key;  // of a log record: eval_loss
  bool greater_wins = false;

  explicit BestMetric(const config::EvalConfig& config);
  std::string name() const { return greater_wins ? key + ", greater" : key; }
  bool is_better(double value, double than) const {
    return greater_wins ? value > than : value < than;  // never where one is not a number
  }
  double worst() const;  // anything is better
};

// Has a run stopped getting better? Why one with this log ends before its last step; none: it goes
// on.
//
// As transformers' EarlyStoppingCallback counts: an evaluation that is not more than
// early_stopping_threshold better than the best before it has not helped, and
// early_stopping_patience of them in a row are enough. Evaluations up to step `since` and those
// without the metric are left out; the one before the first step is no one's result. All of it
// follows from the log: nothing else is saved, and all ranks answer alike.
std::optional<std::string> reason_to_end(const config::EvalConfig& config,
                                         const nlohmann::ordered_json& history, int64_t since = 0);

}  // namespace skein::plan
