// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/reference.h"

#include "skein/plan/model_folder.h"
#include "skein/plan/preferences.h"
#include "skein/plan/rules.h"
#include "skein/tensor/dtype.h"
#include "skein/train/check_once.h"
#include "skein/train/weights.h"

namespace skein::train {
namespace {

// What the reference is made of. An adapter's is computed beside its base.
plan::ModelFolder folder_of(const config::RunConfig& config) {
  const auto& given = config.preference.ref_model;
  if (given.empty()) return {.weights = config.model.model_name_or_path, .adapter = {}};
  return plan::open_model_folder({given, {}, {}});
}

// ref_model is computed as its own config.json says, whatever the run changes in the policy's.
plan::HfConfig model_of(const config::RunConfig& config, const plan::ModelFolder& folder,
                        const plan::HfConfig& architecture) {
  return config.preference.ref_model.empty() ? architecture : plan::read_hf_config(folder.weights);
}

model::BuildOptions build_options(const plan::ModelFolder& folder, DType dtype) {
  model::BuildOptions options{.dtype = tensor::scalar_type_of(dtype)};
  if (folder.adapter.empty()) return options;
  options.tuning.lora = adapter::read_adapter_config(folder.adapter);
  options.tuning.lora->dropout = 0;
  return options;
}

}  // namespace

std::unique_ptr<Reference> build_reference(const config::RunConfig& config,
                                           const plan::HfConfig& architecture, DType dtype,
                                           const World& world) {
  if (plan::reference_of(config) != plan::Reference::kCopy) return nullptr;
  auto reference = std::make_unique<Reference>();
  const auto folder = folder_of(config);
  reference->model =
      model::build(model_of(config, folder, architecture), build_options(folder, dtype));
  const bool divides = plan::zero_stage(config.parallel.distributed_strategy) == 3;
  reference->sharded = std::make_unique<parallel::Sharded>(
      reference->model->table(),
      parallel::ShardOptions{
          .stage = parallel::kStages[divides ? 3 : 0], .inference = true, .device = world.device},
      world.group);
  return reference;
}

void load_reference(Reference& reference, const config::RunConfig& config,
                    const plan::HfConfig& architecture, const World& world) {
  auto& sharded = *reference.sharded;
  const auto folder = folder_of(config);
  if (config.preference.ref_model.empty() && config.model.train_from_scratch) {
    sharded.initialise(static_cast<uint64_t>(config.seed));
    return;
  }
  for (const auto& part : folder.parts()) check_once(part, world);
  const auto& table = reference.model->table();
  const auto slices = sharded.slices_to_save(Access::kSet);
  BaseWeights(folder.weights, model_of(config, folder, architecture), table).load(slices);
  if (!folder.adapter.empty()) load_adapter(folder.adapter, table, slices);
  sharded.gather_loaded();
}

}  // namespace skein::train
