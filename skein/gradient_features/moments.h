// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/gradient_form.h"
#include "skein/tensor/parameter_table.h"

namespace skein::gradient_features {

// Adam's moments of these parameters, from a checkpoint of any strategy and number of ranks. In
// fp32, on the device. Throws one UserError for all that are missing or of another shape, and for
// moments in 8 bits.
std::map<std::string, Moments> read_moments(const fs::path& checkpoint,
                                            const tensor::ParameterTable& table,
                                            const std::vector<std::string>& parameters,
                                            at::Device device);

}  // namespace skein::gradient_features
