// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The model of a folder, to compute with and not to train.
//
// What counts in training alone (dropout) is left out, so that its forward passes are those of
// evaluation. An adapter is computed beside the weights, which are as they were.

#include <c10/core/Device.h>

#include <memory>
#include <optional>

#include "skein/core/dtype.h"
#include "skein/model/model.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/model_folder.h"
#include "skein/train/weights.h"

namespace skein::train {

struct FolderModel {
  plan::ModelFolder folder;
  plan::HfConfig config;  // of the weights
  std::unique_ptr<model::Model> model;

  // The files' values into the model's parameters.
  void load(const Slices& slices) const;
};

// No parameter has memory yet. `asked`: the type to compute in; absent: plan::inference_dtype().
// `beside`: an adapter that no file holds, of a folder without one.
FolderModel build_folder_model(const plan::ModelFolder& folder, std::optional<DType> asked,
                               at::Device device,
                               const std::optional<adapter::AdapterConfig>& beside = {});

}  // namespace skein::train
