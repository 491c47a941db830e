// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/disk_space.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "skein/adapter/tensor_names.h"
#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/files/file_layout.h"
#include "skein/config/online_values.h"
#include "skein/config/output_folder.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/optim/states.h"
#include "skein/plan/finetune.h"
#include "skein/plan/online.h"
#include "skein/plan/run_model.h"
#include "skein/plan/trainer_state.h"

namespace skein::plan {
namespace {

uint64_t bytes_of(const checkpoint::Layout& layout) {
  uint64_t sum = 0;
  for (const auto& file : layout.files) sum += file.size;
  return sum;
}

uint64_t bytes_below(const fs::path& folder) {
  uint64_t sum = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) sum += entry->file_size(ignored);
  }
  return sum;
}

// What open_folder() and claim_folder() will remove before anything is saved.
uint64_t removed_at_start(const config::CheckpointConfig& checkpoint, const fs::path& output) {
  uint64_t sum = 0;
  for (const auto& path : checkpoint::list_temporaries(output)) {
    std::error_code ignored;
    sum += fs::is_directory(path, ignored) ? bytes_below(path) : fs::file_size(path, ignored);
  }
  if (!checkpoint.fresh) return sum;
  const auto record = checkpoint::read_record(output);
  for (const auto& seen : checkpoint::survey(output, record)) {
    const bool goes = record && record->has_start(seen.run);  // others are renamed
    if (goes) sum += bytes_below(seen.listed.path);
  }
  return sum;
}

bool is_complete(const fs::path& output) {
  const auto state = find_trainer_state(output);
  return state && state->step == state->identity.total_steps;
}

// The nearest folder that is there: what the user finds with df.
fs::path existing(const fs::path& folder) {
  std::error_code ignored;
  auto path = fs::absolute(folder.empty() ? "." : folder).lexically_normal();
  while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

}  // namespace

CheckpointFiles checkpoint_files(const Shapes& shapes, const config::RunConfig& config,
                                 DType dtype) {
  // Adapters are fp32 in files, and adapters alone are.
  const bool adapter = config.finetune.finetuning_type == config::FinetuningType::kLora;
  const auto wide = adapter_dtype(dtype);
  std::vector<checkpoint::TensorEntry> weights, states;
  for (const auto& parameter : shapes.parameters) {
    if (adapter && !parameter.trainable) continue;
    const std::vector<uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
    const auto name_in_file = adapter ? adapter::file_name(parameter.name) : parameter.name;
    weights.push_back({name_in_file, adapter ? wide : dtype, shape});
    if (!parameter.trainable) continue;
    const auto type = parameter.adapter ? wide : dtype;
    for (const auto& state : optim::state_tensors(config.optimizer, type)) {
      states.push_back({parameter.name + "." + state.name, state.dtype,
                        optim::stored_shape(state, parameter.shape)});
    }
  }
  const auto* stem = adapter ? checkpoint::kAdapterStem : checkpoint::kModelStem;
  const auto most = static_cast<uint64_t>(config.checkpoint.max_shard_size);
  return {.model = checkpoint::lay_out_files(stem, weights, most),
          .optimizer = checkpoint::lay_out_files(checkpoint::kOptimizerStem, states, most)};
}

CheckpointBytes checkpoint_bytes(const Shapes& shapes, const config::RunConfig& config,
                                 DType dtype) {
  const auto files = checkpoint_files(shapes, config, dtype);
  CheckpointBytes bytes{.model = bytes_of(files.model), .optimizer = bytes_of(files.optimizer)};
  if (!config::has_critic(config)) return bytes;
  const auto critic = critic_config(config);
  const auto its =
      checkpoint_files(tuned_model(critic, read_run_model(critic)).shapes, critic, dtype);
  bytes.critic = bytes_of(its.model) + bytes_of(its.optimizer);
  return bytes;
}

std::optional<uint64_t> free_space(const fs::path& folder) {
  std::error_code error;
  const auto space = fs::space(existing(folder), error);
  if (error) return std::nullopt;
  return space.available;
}

void check_disk(const config::RunConfig& config, const Place& place) {
  const auto& checkpoint = config.checkpoint;
  const auto output = config::output_folder(checkpoint);
  const auto free = free_space(output);
  if (!free || (!checkpoint.fresh && is_complete(output))) return;
  const auto shapes = tuned_model(config, read_run_model(config)).shapes;
  const auto dtype = working_dtype(config.model.dtype, place);
  const bool saves = checkpoint.save_strategy != config::SaveStrategy::kNo;
  auto needed = checkpoint_bytes(shapes, config, dtype);
  if (checkpoint.save_only_model || !saves) needed.optimizer = needed.critic = 0;
  const auto available = *free + removed_at_start(checkpoint, output);
  if (needed.sum() <= available) return;
  throw IoError(fmt::format(
      "the disk is too small for {}: {} are needed (model {}, optimizer {}{}), {} are free in {}; "
      "free some there, or give another output_dir",
      saves ? "the first checkpoint" : "the model", shown_bytes(needed.sum()),
      shown_bytes(needed.model), shown_bytes(needed.optimizer),
      needed.critic > 0 ? ", critic " + shown_bytes(needed.critic) : "", shown_bytes(available),
      existing(fs::absolute(output).parent_path()).string()));
}

}  // namespace skein::plan
