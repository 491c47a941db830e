// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A model folder as one whole model on one device, for commands that do not train.

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "skein/core/dtype.h"
#include "skein/model/model.h"
#include "skein/plan/model_folder.h"

namespace skein::cli {

// auto, cpu, cuda or cuda:N. Throws UserError for anything else, and for a GPU that is not there.
at::Device device_of(const std::string& name);

// All of it on the device, as train/folder_model.h builds it. Compares a checkpoint with its
// manifest first.
std::unique_ptr<model::Model> load_model(const plan::ModelFolder& folder,
                                         std::optional<DType> asked, at::Device device);

}  // namespace skein::cli
