// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tensors of an adapter change which tensors of its base? Names and shapes alone are looked
// at.

#include <map>
#include <string>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/convert/base_model.h"
#include "skein/convert/tensor_stream.h"

namespace skein::convert {

struct MergePlan {
  std::map<std::string, LoraTensors> loras;  // by module
  std::vector<TensorJob> jobs;               // point into `loras`, the base and the adapter
  ConfigChanges config;
  size_t num_replaced = 0;  // tensors that the adapter holds whole
};

// Throws one UserError for all tensors of the adapter that belong to none of the base, lack their
// partner, are of another shape than the base and adapter_config.json say, or are not targeted, and
// for all that adapter_config.json means and the adapter does not hold.
//
// A head that is the embedding in the base stays so where neither is changed, or both to the same;
// else it gets a tensor of its own, which is what the adapter was trained with.
MergePlan plan_merge(const BaseModel& base, const checkpoint::ModelFiles& adapter,
                     const adapter::AdapterConfig& config);

}  // namespace skein::convert
