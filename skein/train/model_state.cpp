// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/model_state.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "skein/adapter/adapter_config.h"
#include "skein/adapter/tensor_names.h"
#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"
#include "skein/optim/states.h"
#include "skein/plan/chat_files.h"
#include "skein/plan/model_texts.h"
#include "skein/tensor/dtype.h"
#include "skein/train/weights.h"

namespace skein::train {
namespace {

using checkpoint::TensorEntry;

TensorEntry entry(const std::string& name, at::ScalarType dtype,
                  const std::vector<int64_t>& shape) {
  return {name, tensor::dtype_of(dtype), {shape.begin(), shape.end()}};
}

// The rank's share of slices that every rank has.
std::vector<tensor::TensorSlice> share_of(std::vector<tensor::TensorSlice> slices,
                                          const checkpoint::Share& share) {
  for (auto& slice : slices) {
    const int64_t count = slice.end - slice.begin;
    const int64_t first = count * share.rank / share.size,
                  last = count * (share.rank + 1) / share.size;
    slice.data = slice.data.flatten().narrow(0, first, last - first);
    slice.end = slice.begin + last;
    slice.begin += first;
  }
  std::erase_if(slices, [](const auto& slice) { return slice.begin == slice.end; });
  return slices;
}

// In an adapter's file.
at::ScalarType wide(at::ScalarType dtype) {
  return tensor::scalar_type_of(plan::adapter_dtype(tensor::dtype_of(dtype)));
}

// Was the checkpoint's model saved in another type?
bool differs_in_dtype(const fs::path& checkpoint, const tensor::ParameterTable& table) {
  const checkpoint::Reader reader(checkpoint);
  return std::ranges::any_of(table.parameters, [&](const tensor::Parameter& parameter) {
    const auto* stored = checkpoint::find_tensor(reader.files(), parameter.name, /*foreign=*/false);
    return stored != nullptr && stored->tensor->dtype != tensor::dtype_of(parameter.dtype);
  });
}

// Of the optimizer's slices the masters, under the names of their weights.
std::vector<tensor::TensorSlice> masters_of(std::vector<tensor::TensorSlice> states) {
  constexpr std::string_view kSuffix = ".master";
  std::erase_if(states, [&](const auto& slice) { return !slice.name.ends_with(kSuffix); });
  for (auto& slice : states) slice.name.resize(slice.name.size() - kSuffix.size());
  return states;
}

}  // namespace

ModelState::ModelState(const TrainedModel& parts, ModelFiles files)
    : architecture_(parts.architecture),
      model_(parts.model),
      sharded_(parts.sharded),
      optimizer_(parts.optimizer),
      files_(std::move(files)) {}

void ModelState::initialise(uint64_t seed) {
  sharded_.initialise(seed);
  optimizer_.refresh_masters();
}

void ModelState::load_weights(const fs::path& folder, uint64_t seed) {
  const BaseWeights weights(folder, architecture_, model_.table());
  if (!weights.has_score()) {
    sharded_.initialise(seed,
                        [](const auto& parameter) { return parameter.name == plan::kScoreName; });
  }
  weights.load(sharded_.slices_to_save(Access::kSet));
  sharded_.gather_loaded();
  optimizer_.refresh_masters();
  // What 16-bit weights have rounded (an fp32 file), the masters take as it is.
  if (!has_masters() || !weights.differ_in_dtype()) return;
  weights.load(masters_of(sharded_.slices_to_save(optimizer_.states(Access::kSet))));
  sharded_.gather_loaded(optimizer_.states(Access::kSet));
}

void ModelState::initialise_adapter(uint64_t seed) {
  sharded_.initialise(
      seed, [](const auto& parameter) { return adapter::is_adapter_tensor(parameter.name); });
  {
    const auto hold = sharded_.hold_roots();  // blocks come and go
    model_.fill_magnitudes(sharded_.kept_slices(Access::kSet), sharded_);
  }
  optimizer_.refresh_masters();
}

// A checkpoint of an adapter holds what trains: base weights that differ from the base's would be
// trained with and lost.
void ModelState::check_base_in_adapter(const fs::path& folder) {
  const auto types = base_weights_in_adapter(folder, model_.table());
  if (types.empty()) return;
  auto slices = sharded_.slices_to_save(Access::kRead);
  std::erase_if(slices, [&](const auto& slice) { return !types.contains(slice.name); });
  auto stored = slices;
  for (auto& slice : stored) slice.data = at::empty_like(slice.data);
  train::load_adapter(folder, model_.table(), stored);
  int64_t differences = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    // The file may have rounded what the base holds.
    const auto rounded = slices[i].data.to(tensor::scalar_type_of(types.at(slices[i].name)));
    differences += at::equal(rounded.to(slices[i].data.scalar_type()), stored[i].data) ? 0 : 1;
  }
  if (sharded_.group().sum(differences) == 0) return;
  std::vector<std::string> names;
  for (const auto& [name, type] : types) names.push_back(name);
  throw UserError(fmt::format(
      "{0} stores {1} with other values than the base has: a run that goes on with it would keep "
      "the adapters alone. `skein merge {0} --base {2} --out DIR` first, and train DIR",
      folder.string(), fmt::join(names, ", "), files_.tuning.base));
}

void ModelState::load_adapter(const fs::path& folder) {
  check_base_in_adapter(folder);
  // The base keeps its own values, which the file may hold rounded.
  auto slices = sharded_.slices_to_save(Access::kSet);
  std::erase_if(slices,
                [&](const auto& slice) { return !model_.table().find(slice.name)->trainable; });
  train::load_adapter(folder, model_.table(), std::move(slices));
  sharded_.gather_loaded();
  optimizer_.refresh_masters();
  if (!has_masters()) return;
  train::load_adapter(folder, model_.table(),
                      masters_of(sharded_.slices_to_save(optimizer_.states(Access::kSet))));
  sharded_.gather_loaded(optimizer_.states(Access::kSet));
}

bool ModelState::has_master(const tensor::Parameter& parameter) const {
  if (!parameter.trainable) return false;
  const auto dtype = tensor::dtype_of(parameter.dtype);
  const auto states = optim::state_tensors(optimizer_.options(), dtype);
  return std::ranges::find(states, "master", &optim::StateTensor::name) != states.end();
}

bool ModelState::has_masters() const {
  return std::ranges::any_of(model_.table().parameters,
                             [&](const auto& parameter) { return has_master(parameter); });
}

const char* ModelState::stem() const {
  return is_adapter() ? checkpoint::kAdapterStem : checkpoint::kModelStem;
}

std::vector<TensorEntry> ModelState::model_entries() const {
  std::vector<TensorEntry> entries;
  for (const auto& parameter : model_.table().parameters) {
    if (!is_adapter()) {
      entries.push_back(entry(parameter.name, parameter.dtype, parameter.shape));
    } else if (parameter.trainable) {
      entries.push_back(
          entry(adapter::file_name(parameter.name), wide(parameter.dtype), parameter.shape));
    }
  }
  return entries;
}

// An adapter's file has 32 bits: of what trains in 16 it gets the masters.
std::vector<tensor::TensorSlice> ModelState::with_masters(
    std::vector<tensor::TensorSlice> weights, std::vector<tensor::TensorSlice> states) const {
  if (!is_adapter()) return weights;
  std::erase_if(weights,
                [&](const auto& slice) { return has_master(*model_.table().find(slice.name)); });
  std::ranges::move(masters_of(std::move(states)), std::back_inserter(weights));
  return weights;
}

std::vector<tensor::TensorSlice> ModelState::in_files(
    std::vector<tensor::TensorSlice> slices) const {
  if (!is_adapter()) return slices;
  std::erase_if(slices,
                [&](const auto& slice) { return !model_.table().find(slice.name)->trainable; });
  for (auto& slice : slices) {
    slice.name = adapter::file_name(slice.name);
    slice.dtype = wide(slice.dtype);
  }
  return slices;
}

std::vector<TensorEntry> ModelState::optimizer_entries() const {
  std::vector<TensorEntry> entries;
  for (const auto& parameter : model_.table().parameters) {
    if (!parameter.trainable) continue;
    const auto weights = tensor::dtype_of(parameter.dtype);
    for (const auto& state : optim::state_tensors(optimizer_.options(), weights)) {
      entries.push_back({parameter.name + "." + state.name, state.dtype,
                         optim::stored_shape(state, parameter.shape)});
    }
  }
  return entries;
}

void ModelState::add_to(checkpoint::Contents& contents, bool with_optimizer) const {
  const auto& share = files_.share;
  auto weights = share ? share_of(sharded_.kept_slices(Access::kCopy), *share)
                       : sharded_.slices_to_save(Access::kCopy);
  std::vector<tensor::TensorSlice> states;
  // Not for nothing: of what lies on a disk every byte is read and compared.
  if (with_optimizer || (is_adapter() && has_masters())) {
    states = share ? share_of(sharded_.kept_slices(optimizer_.states(Access::kCopy)), *share)
                   : sharded_.slices_to_save(optimizer_.states(Access::kCopy));
  }
  contents.sets.push_back({.stem = stem(),
                           .folder = files_.folder,
                           .tensors = model_entries(),
                           .slices = in_files(with_masters(std::move(weights), states))});
  if (with_optimizer) {
    contents.sets.push_back({.stem = checkpoint::kOptimizerStem,
                             .folder = files_.folder,
                             .tensors = optimizer_entries(),
                             .slices = std::move(states)});
  }
  if (commits()) add_config(contents);
}

bool ModelState::commits() const {
  return (files_.share ? files_.share->rank : sharded_.group().rank()) == 0;
}

void ModelState::add_config(checkpoint::Contents& contents) const {
  const std::string place = files_.folder.empty() ? "" : files_.folder + "/";
  if (is_adapter()) {
    contents.texts[place + adapter::kConfigName] = files_.tuning.adapter_config;
    return;
  }
  const auto dtype = tensor::dtype_of(model_.table().parameters.front().dtype);
  contents.texts[place + "config.json"] = plan::with_changes(
      plan::hf_config_json(architecture_, std::string(dtype_word(dtype))), files_.config_changes);
}

// What trains, from its masters: 16 bits of another kind have lost what these 16 bits can hold.
// Both may lie in pieces, cut at different places.
void ModelState::round_masters() {
  const c10::NoGradGuard no_grad;
  const auto masters = masters_of(sharded_.slices_to_save(optimizer_.states()));
  for (const auto& weights : sharded_.slices_to_save(Access::kSet)) {
    for (const auto& master : masters) {
      const auto first = std::max(weights.begin, master.begin);
      const auto last = std::min(weights.end, master.end);
      if (master.name != weights.name || first >= last) continue;
      weights.data.narrow(0, first - weights.begin, last - first)
          .copy_(master.data.narrow(0, first - master.begin, last - first));
    }
  }
}

void ModelState::restore_weights(const fs::path& checkpoint) {
  const checkpoint::Reader reader(checkpoint / files_.folder, stem());
  const auto load = [&](std::vector<tensor::TensorSlice> slices) {
    reader.load(slices, {.tensors = model_entries(), .foreign = false, .adapter = is_adapter()});
  };
  load(in_files(sharded_.slices_to_save(Access::kSet)));
  sharded_.gather_loaded();
  optimizer_.refresh_masters();
  if (!is_adapter() || !has_masters()) return;
  load(in_files(masters_of(sharded_.slices_to_save(optimizer_.states(Access::kSet)))));
  sharded_.gather_loaded(optimizer_.states(Access::kSet));
}

void ModelState::restore_tensors(const fs::path& checkpoint, int64_t num_updates) {
  checkpoint::read_checkpoint(
      checkpoint, {{.stem = stem(),
                    .folder = files_.folder,
                    .tensors = model_entries(),
                    .slices = in_files(sharded_.slices_to_save(Access::kSet))},
                   {.stem = checkpoint::kOptimizerStem,
                    .folder = files_.folder,
                    .tensors = optimizer_entries(),
                    .slices = sharded_.slices_to_save(optimizer_.states(Access::kSet))}});
  if (!is_adapter() && differs_in_dtype(checkpoint / files_.folder, model_.table()))
    round_masters();
  sharded_.gather_loaded();
  sharded_.gather_loaded(optimizer_.states(Access::kSet));
  optimizer_.set_num_updates(num_updates);
}

}  // namespace skein::train
