// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A model folder as one whole model on one device, for commands that do not train.

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

#include "skein/core/file.h"
#include "skein/model/model.h"

namespace skein::cli {

// auto, cpu, cuda or cuda:N. Throws UserError for anything else, and for a GPU that is not there.
at::Device device_of(const std::string& name);

// Dropout is left out of the model: its forward passes are those of evaluation. `adapter` is a
// folder of PEFT's, which is not merged into the weights.
std::unique_ptr<model::Model> load_model(const fs::path& folder, const plan::HfConfig& config,
                                         at::ScalarType dtype, at::Device device,
                                         const fs::path& adapter = {});

}  // namespace skein::cli
