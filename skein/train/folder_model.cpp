// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/folder_model.h"

#include "skein/adapter/adapter_config.h"
#include "skein/tensor/dtype.h"
#include "skein/train/place.h"

namespace skein::train {

FolderModel build_folder_model(const plan::ModelFolder& folder, std::optional<DType> asked,
                               at::Device device,
                               const std::optional<adapter::AdapterConfig>& beside) {
  FolderModel built{.folder = folder, .config = plan::read_hf_config(folder.weights), .model = {}};
  const auto dtype = plan::inference_dtype(asked, built.config.dtype, place_of(device));
  model::BuildOptions options{.dtype = tensor::scalar_type_of(dtype)};
  if (!folder.adapter.empty()) {
    options.tuning.lora = adapter::read_adapter_config(folder.adapter);
    options.tuning.lora->dropout = 0;
    if (options.tuning.lora->task_type == adapter::kScores) {
      built.config = plan::with_score(built.config);
    }
  }
  if (beside) options.tuning.lora = beside;
  built.model = model::build(built.config, options);
  return built;
}

void FolderModel::load(const Slices& slices) const {
  const auto& table = model->table();
  BaseWeights(folder.weights, config, table).load(slices);
  if (!folder.adapter.empty()) load_adapter(folder.adapter, table, slices);
}

}  // namespace skein::train
