// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/weights.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "skein/adapter/tensor_names.h"
#include "skein/core/error.h"
#include "skein/ops/nf4.h"
#include "skein/tensor/dtype.h"

namespace skein::train {
namespace {

checkpoint::TensorEntry entry(const std::string& name, const tensor::Parameter& parameter) {
  const auto& shape = parameter.file_shape();
  return {name, tensor::dtype_of(parameter.dtype), {shape.begin(), shape.end()}};
}

// What is one tensor cannot have two values. `slices` are filled, under the names of the files.
void require_same(const std::string& name, const std::string& again,
                  const checkpoint::Reader& reader, const checkpoint::LoadOptions& options,
                  Slices slices) {
  std::erase_if(slices, [&](const auto& slice) { return slice.name != name; });
  auto others = slices;
  for (auto& other : others) {
    other.name = again;
    other.data = at::empty_like(other.data);
  }
  reader.load(others, options);
  for (size_t i = 0; i < slices.size(); ++i) {
    if (at::equal(slices[i].data, others[i].data)) continue;
    throw UserError(fmt::format(
        "{0} stores {1} and {2} with other values, and in this model they are one tensor: `skein "
        "merge {0} --out DIR` makes a model of it that has two",
        reader.files().folder.string(), name, again));
  }
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
  // A head that gives logits stays behind where one that scores takes its place.
  const bool scores = table.find(plan::kScoreName) != nullptr;
  lacks_score_ = scores && checkpoint::find_tensor(reader_.files(), plan::kScoreName,
                                                   /*foreign=*/true) == nullptr;
  options_.tied_head = head.has_value() || lacks_score_;
  for (const auto& parameter : table.parameters) {
    if (adapter::is_adapter_tensor(parameter.name)) continue;
    if (lacks_score_ && parameter.name == plan::kScoreName) continue;
    // The embedding, and the head, whose rows are padded in memory.
    if (&parameter == &table.parameters.front() || parameter.padded_rows > 0) {
      rows_.tensors.insert(name_of(parameter.name));
    }
    options_.tensors.push_back(entry(name_of(parameter.name), parameter));
    if (parameter.packed) packed_[parameter.name] = *parameter.packed;
  }
}

const std::string& BaseWeights::name_of(const std::string& parameter) const {
  return parameter == head_ ? embedding_ : parameter;
}

void BaseWeights::load(Slices slices) const {
  std::erase_if(slices, [&](const auto& slice) {
    return adapter::is_adapter_tensor(slice.name) ||
           (lacks_score_ && slice.name == plan::kScoreName);
  });
  const auto is_packed = [&](const auto& slice) { return packed_.contains(slice.name); };
  Slices packed;
  std::ranges::copy_if(slices, std::back_inserter(packed), is_packed);
  std::erase_if(slices, is_packed);
  for (auto& slice : slices) slice.name = name_of(slice.name);
  if (rows_.there == rows_.wanted) {
    reader_.load(slices, options_);
  } else {
    checkpoint::load_with_new_rows(reader_, slices, options_, rows_);
  }
  for (const auto& slice : packed) load_packed(slice);
}

void BaseWeights::load_packed(const tensor::TensorSlice& slice) const {
  const auto& whole = packed_.at(slice.name);
  const auto bytes =
      ops::quantise_nf4(whole.layout(), [&](int64_t begin, const at::Tensor& values) {
        reader_.read({.name = slice.name,
                      .shape = whole.shape,
                      .begin = begin,
                      .end = begin + values.numel(),
                      .data = values});
      });
  slice.data.copy_(bytes.narrow(0, slice.begin, slice.end - slice.begin));
}

bool BaseWeights::differ_in_dtype() const {
  return std::ranges::any_of(options_.tensors, [&](const checkpoint::TensorEntry& wanted) {
    const auto* stored = checkpoint::find_tensor(reader_.files(), wanted.name, /*foreign=*/true);
    return stored != nullptr && stored->tensor->dtype != wanted.dtype &&
           !packed_.contains(wanted.name);
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
  const auto again = adapter::embedding_again(table.parameters, reader.files().tensors);
  if (!again.empty()) options.tensors.push_back(entry(again, table.parameters.front()));
  std::erase_if(slices, [&](const auto& slice) { return !stored.contains(slice.name); });
  for (auto& slice : slices) slice.name = stored.at(slice.name);
  reader.load(slices, options);
  if (!again.empty()) require_same(names.front(), again, reader, options, std::move(slices));
}

std::map<std::string, DType> base_weights_in_adapter(const fs::path& folder,
                                                     const tensor::ParameterTable& table) {
  const checkpoint::Reader reader(folder, checkpoint::kAdapterStem);
  const auto names = adapter::stored_names(table.parameters, reader.files().tensors);
  std::map<std::string, DType> found;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& parameter = table.parameters[i];
    if (names[i].empty() || parameter.trainable) continue;
    found[parameter.name] = reader.files().tensors.at(names[i]).tensor->dtype;
  }
  return found;
}

}  // namespace skein::train
