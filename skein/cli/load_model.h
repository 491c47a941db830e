// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A model folder as one whole model on one device, for commands that do not train.

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>

#include "skein/cli/model_folder.h"
#include "skein/core/dtype.h"
#include "skein/model/model.h"

namespace skein::cli {

// auto, cpu, cuda or cuda:N. Throws UserError for anything else, and for a GPU that is not there.
at::Device device_of(const std::string& name);

// `asked`, else on a GPU what the files hold, on a CPU float32: 16-bit arithmetic is slow there.
at::ScalarType working_dtype(std::optional<DType> asked, const plan::HfConfig& config,
                             const at::Device& device);

// Dropout is left out of the model: its forward passes are those of evaluation. An adapter is
// computed beside the weights, which are as they were. `config` is that of the weights' folder.
std::unique_ptr<model::Model> load_model(const ModelFolder& folder, const plan::HfConfig& config,
                                         at::ScalarType dtype, at::Device device);

}  // namespace skein::cli
