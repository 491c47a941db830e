// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/weights.h"

#include <algorithm>
#include <map>

#include "skein/adapter/tensor_names.h"
#include "skein/tensor/dtype.h"

namespace skein::train {
namespace {

checkpoint::TensorEntry entry(const std::string& name, const tensor::Parameter& parameter) {
  return {
      name, tensor::dtype_of(parameter.dtype), {parameter.shape.begin(), parameter.shape.end()}};
}

}  // namespace

BaseWeights::BaseWeights(const fs::path& folder, const plan::HfConfig& architecture,
                         const tensor::ParameterTable& table)
    : reader_(folder),
      rows_{.there = plan::read_hf_config(folder).dimensions().vocabulary,
            .wanted = architecture.dimensions().vocabulary} {
  const auto shapes = architecture.shapes();
  const auto& head = shapes.tied_head;
  if (head && table.find(head->name) != nullptr &&
      checkpoint::find_tensor(reader_.files(), head->name, /*foreign=*/true) == nullptr) {
    head_ = head->name;
    embedding_ = shapes.parameters.front().name;
  }
  options_.tied_head = head.has_value();
  for (const auto& parameter : table.parameters) {
    if (adapter::is_adapter_tensor(parameter.name)) continue;
    // The embedding, and the head, whose rows are padded in memory.
    if (&parameter == &table.parameters.front() || parameter.padded_rows > 0) {
      rows_.tensors.insert(name_of(parameter.name));
    }
    options_.tensors.push_back(entry(name_of(parameter.name), parameter));
  }
}

const std::string& BaseWeights::name_of(const std::string& parameter) const {
  return parameter == head_ ? embedding_ : parameter;
}

void BaseWeights::load(Slices slices) const {
  std::erase_if(slices, [](const auto& slice) { return adapter::is_adapter_tensor(slice.name); });
  for (auto& slice : slices) slice.name = name_of(slice.name);
  if (rows_.there == rows_.wanted) {
    reader_.load(slices, options_);
  } else {
    checkpoint::load_with_new_rows(reader_, slices, options_, rows_);
  }
}

bool BaseWeights::differ_in_dtype() const {
  return std::ranges::any_of(options_.tensors, [&](const checkpoint::TensorEntry& wanted) {
    const auto* stored = checkpoint::find_tensor(reader_.files(), wanted.name, /*foreign=*/true);
    return stored != nullptr && stored->tensor->dtype != wanted.dtype;
  });
}

void load_adapter(const fs::path& folder, const tensor::ParameterTable& table, Slices slices) {
  const checkpoint::Reader reader(folder, checkpoint::kAdapterStem);
  const auto names = adapter::stored_names(table.parameters, reader.files().tensors);
  checkpoint::LoadOptions options{.tensors = {}, .foreign = false, .adapter = true};
  std::map<std::string, std::string> stored;  // by the parameter's name
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    options.tensors.push_back(entry(names[i], table.parameters[i]));
    stored[table.parameters[i].name] = names[i];
  }
  std::erase_if(slices, [&](const auto& slice) { return !stored.contains(slice.name); });
  for (auto& slice : slices) slice.name = stored.at(slice.name);
  reader.load(slices, options);
}

std::set<std::string> base_weights_in_adapter(const fs::path& folder,
                                              const tensor::ParameterTable& table) {
  const checkpoint::Reader reader(folder, checkpoint::kAdapterStem);
  const auto names = adapter::stored_names(table.parameters, reader.files().tensors);
  std::set<std::string> found;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& parameter = table.parameters[i];
    if (!names[i].empty() && !parameter.trainable) found.insert(parameter.name);
  }
  return found;
}

}  // namespace skein::train
