// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "skein/checkpoint/new_rows.h"
#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"
#include "skein/optim/states.h"
#include "skein/plan/run_model.h"
#include "skein/tensor/dtype.h"

namespace skein::train {
namespace {

using checkpoint::TensorEntry;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "tokenizer.model",
                                           "vocab.json",
                                           "merges.txt",
                                           "chat_template.jinja"};

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

// Do the files hold tensors of another type than the model's?
bool converts(const checkpoint::ModelFiles& files, const std::vector<TensorEntry>& model) {
  return std::ranges::any_of(model, [&](const TensorEntry& wanted) {
    const auto* stored = checkpoint::find_tensor(files, wanted.name, /*foreign=*/true);
    return stored != nullptr && stored->tensor->dtype != wanted.dtype;
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

std::map<std::string, std::string> files_beside_weights(const config::ModelConfig& model) {
  std::map<std::string, std::string> files;
  const auto carry = [&](const fs::path& file, const std::string& name) {
    if (fs::exists(file)) files[name] = read_file(file);
  };
  const fs::path folder = model.model_name_or_path;
  carry(folder / "generation_config.json", "generation_config.json");
  const fs::path given = model.tokenizer_name_or_path;
  if (!given.empty() && !fs::is_directory(given) && given.filename() != "tokenizer.json") {
    carry(given, "tokenizer.json");  // what lies beside it may be another tokenizer's
    plan::add_new_tokens(model, files);
    return files;
  }
  const auto tokenizer = given.empty()             ? folder
                         : fs::is_directory(given) ? given
                                                   : given.parent_path();
  for (const char* name : kTokenizerFiles) carry(tokenizer / name, name);
  plan::add_new_tokens(model, files);
  return files;
}

RunState::RunState(const RunParts& parts, RunStateOptions options)
    : architecture_(parts.architecture),
      model_(parts.model),
      sharded_(parts.sharded),
      optimizer_(parts.optimizer),
      metrics_(parts.metrics),
      options_(std::move(options)) {}

void RunState::initialise(uint64_t seed) {
  sharded_.initialise(seed);
  optimizer_.refresh_masters();
}

void RunState::load_weights(const fs::path& folder) {
  const checkpoint::Reader reader(folder);
  const checkpoint::LoadOptions options{.tensors = model_entries(),
                                        .tied_head = architecture_.dimensions().tied_head};
  const auto load = [&](std::vector<tensor::TensorSlice> slices) {
    const checkpoint::NewRows rows{.there = plan::read_hf_config(folder).dimensions().vocabulary,
                                   .wanted = architecture_.dimensions().vocabulary};
    if (rows.there == rows.wanted) return reader.load(slices, options);
    checkpoint::load_with_new_rows(reader, slices, options, rows);
  };
  load(sharded_.slices_to_save());
  sharded_.gather_loaded();
  optimizer_.refresh_masters();
  // What 16-bit weights have rounded (an fp32 file), the masters take as it is.
  auto masters = masters_of(sharded_.slices_to_save(optimizer_.states()));
  if (masters.empty() || !converts(reader.files(), options.tensors)) return;
  load(std::move(masters));
  sharded_.gather_loaded(optimizer_.states());
}

std::vector<TensorEntry> RunState::model_entries() const {
  std::vector<TensorEntry> entries;
  for (const auto& parameter : model_.table().parameters) {
    entries.push_back(entry(parameter.name, parameter.dtype, parameter.shape));
  }
  return entries;
}

std::vector<TensorEntry> RunState::optimizer_entries() const {
  std::vector<TensorEntry> entries;
  for (const auto& parameter : model_.table().parameters) {
    if (!parameter.trainable) continue;
    const auto weight_bytes = static_cast<int64_t>(c10::elementSize(parameter.dtype));
    for (const auto& [name, bytes] : optim::state_tensors(optimizer_.options(), weight_bytes)) {
      entries.push_back(entry(parameter.name + "." + name, bytes == 8 ? at::kDouble : at::kFloat,
                              parameter.shape));
    }
  }
  return entries;
}

checkpoint::Contents RunState::contents(int64_t step, bool with_optimizer) {
  checkpoint::Contents contents{.model = model_entries(),
                                .optimizer = {},
                                .model_slices = {},
                                .optimizer_slices = {},
                                .texts = {}};
  const auto& share = options_.share;
  contents.model_slices =
      share ? share_of(sharded_.kept_slices(), *share) : sharded_.slices_to_save();
  if (with_optimizer) {
    contents.optimizer = optimizer_entries();
    contents.optimizer_slices = share ? share_of(sharded_.kept_slices(optimizer_.states()), *share)
                                      : sharded_.slices_to_save(optimizer_.states());
  }
  // The rank that commits writes the texts; the log in them can be long.
  const bool commits = (share ? share->rank : sharded_.group().rank()) == 0;
  if (commits) {
    const auto dtype = tensor::dtype_of(model_.table().parameters.front().dtype);
    contents.texts = options_.files;
    contents.texts["config.json"] =
        plan::hf_config_json(architecture_, std::string(dtype_word(dtype)));
    contents.texts[plan::kStateFile] = trainer_state(step);
  }
  return contents;
}

std::string RunState::trainer_state(int64_t step) {
  return plan::trainer_state_text({.step = step,
                                   .tokens_seen = metrics_.num_tokens_seen(),
                                   .num_updates = optimizer_.num_updates(),
                                   .identity = options_.identity,
                                   .best = best_,
                                   .history = metrics_.history()});
}

bool RunState::add_evaluation(int64_t step, double loss) {
  const double best = best_ ? best_->loss : std::numeric_limits<double>::infinity();
  if (!(loss < best)) return false;  // also when it is not a number
  best_before_ = best_;
  best_ = plan::TrainerState::Best{.loss = loss, .step = step};
  return true;
}

void RunState::drop_evaluation(int64_t step) {
  if (best_step() == step) best_ = best_before_;
}

int64_t RunState::restore(const fs::path& checkpoint) {
  auto state = plan::read_trainer_state(checkpoint);
  restore_tensors(checkpoint);
  saved_history_ = std::move(state.history);
  saved_tokens_seen_ = state.tokens_seen;
  if (state.best) best_ = state.best;
  return state.step;
}

void RunState::restore_log() { metrics_.restore(saved_history_, saved_tokens_seen_); }

void RunState::restore_weights(const fs::path& checkpoint) {
  auto slices = sharded_.slices_to_save();
  checkpoint::Reader(checkpoint).load(slices, {.tensors = model_entries(), .foreign = false});
  sharded_.gather_loaded();
  optimizer_.refresh_masters();
}

void RunState::restore_tensors(const fs::path& checkpoint) {
  auto model = sharded_.slices_to_save();
  auto optimizer = sharded_.slices_to_save(optimizer_.states());
  checkpoint::read_checkpoint(checkpoint, {.model = model,
                                           .optimizer = optimizer,
                                           .model_tensors = model_entries(),
                                           .optimizer_tensors = optimizer_entries()});
  sharded_.gather_loaded();
  sharded_.gather_loaded(optimizer_.states());
  optimizer_.set_num_updates(plan::read_trainer_state(checkpoint).num_updates);
}

}  // namespace skein::train
