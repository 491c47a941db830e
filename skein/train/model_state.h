// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A model that trains: how its weights and its optimizer's states begin, go to disk and come back.
//
// A run has one, its policy, or several: each further one has a folder of its own inside the
// checkpoint. Weights and moments travel as slices by name.

#include <cstdint>
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
#include "skein/plan/trainer_state.h"

namespace skein::train {

// All must outlive the ModelState.
struct TrainedModel {
  const plan::HfConfig& architecture;
  const model::Model& model;
  parallel::Sharded& sharded;
  optim::Optimizer& optimizer;
};

struct ModelFiles {
  std::string folder{};  // inside the checkpoint; empty: the checkpoint itself
  // With an adapter_config, files hold the adapter alone, under PEFT's names and in fp32.
  plan::TuningIdentity tuning{};
  std::string config_changes = "{}";  // of config.json, see plan/chat_files.h
  // Every node saves all by itself, and of that this rank its share. Only where nothing is sharded.
  std::optional<checkpoint::Share> share{};
};

class ModelState {
 public:
  ModelState(const TrainedModel& parts, ModelFiles files);

  // Do its files hold an adapter alone?
  bool is_adapter() const { return !files_.tuning.adapter_config.empty(); }
  bool has_master(const tensor::Parameter& parameter) const;
  // On some rank: this one's shard may be padding alone.
  bool has_masters() const;
  // Does this rank write the texts of a save?
  bool commits() const;
  int64_t num_updates() const { return optimizer_.num_updates(); }
  const std::string& folder() const { return files_.folder; }

  // First weights: keyed by the seed, or from a model folder (a head that scores, which that lacks,
  // by the seed). Whatever is read, here and below, a rank reads its shard of; the rest comes from
  // the other ranks: collective.
  void initialise(uint64_t seed);
  void load_weights(const fs::path& folder, uint64_t seed);
  // The same beside the weights of the base.
  void initialise_adapter(uint64_t seed);
  void load_adapter(const fs::path& folder);

  // Its file sets, and its config.json or adapter_config.json.
  void add_to(checkpoint::Contents& contents, bool with_optimizer) const;
  // Weights and moments, of an optimizer that had made so many updates; or weights alone.
  void restore_tensors(const fs::path& checkpoint, int64_t num_updates);
  void restore_weights(const fs::path& checkpoint);

 private:
  void check_base_in_adapter(const fs::path& folder);
  const char* stem() const;
  // What the model's files hold, and of it this rank's slices under the names there.
  std::vector<checkpoint::TensorEntry> model_entries() const;
  std::vector<tensor::TensorSlice> in_files(std::vector<tensor::TensorSlice> slices) const;
  std::vector<tensor::TensorSlice> with_masters(std::vector<tensor::TensorSlice> weights,
                                                std::vector<tensor::TensorSlice> states) const;
  std::vector<checkpoint::TensorEntry> optimizer_entries() const;
  void add_config(checkpoint::Contents& contents) const;
  void round_masters();

  const plan::HfConfig& architecture_;
  const model::Model& model_;
  parallel::Sharded& sharded_;
  optim::Optimizer& optimizer_;
  const ModelFiles files_;
};

}  // namespace skein::train
