// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "tests/ranks/training_case.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <map>
#include <sstream>

#include "skein/algorithms/pretrain.h"
#include "skein/core/hash.h"
#include "skein/model/model.h"
#include "skein/optim/adamw.h"
#include "skein/parallel/sharded.h"
#include "skein/tensor/host_stash.h"
#include "skein/train/update.h"

namespace skein::ranks {
namespace {

constexpr int64_t kVocabulary = 61, kTokens = 12, kRows = 2;

struct ModelCase {
  std::string config;
  std::vector<std::string> lora_targets;  // empty: everything trains
};

const std::string kLlama =
    R"({"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "attention_bias": true)";
const std::string kGpt =
    R"({"model_type": "gpt2", "vocab_size": 61, "n_positions": 16, "n_embd": 32, "n_layer": 3,
        "n_head": 2)";

const std::map<std::string, ModelCase>& models() {
  static const auto* all = new std::map<std::string, ModelCase>{
      {"llama", {kLlama + R"(, "tie_word_embeddings": false})", {}}},
      {"llama_tied", {kLlama + R"(, "tie_word_embeddings": true})", {}}},
      {"llama_lora", {kLlama + R"(, "tie_word_embeddings": false})", {"q_proj", "down_proj"}}},
      {"gpt2", {kGpt + "}", {}}},  // dropout 0.1 everywhere, as in Hugging Face's default
      {"gpt2_untied", {kGpt + R"(, "tie_word_embeddings": false})", {}}},
      {"gpt2_lora", {kGpt + "}", {"c_attn", "c_proj"}}},
  };
  return *all;
}

std::unique_ptr<model::Model> build_model(const TrainingCase& c) {
  const auto& [config, targets] = models().at(c.model);
  model::BuildOptions options{.dtype = c.float64 ? at::kDouble : at::kFloat};
  if (!targets.empty()) {
    // Adapters beside the first two blocks; the last one and the roots train.
    options.tuning.lora = adapter::AdapterConfig{
        .rank = 4,
        .alpha = 8,
        .dropout = 0.1,
        .targets = {.kind = adapter::ModuleChoice::Kind::kNames, .names = targets},
        .layers = {0, 1}};
    const bool llama = c.model.starts_with("llama");
    options.tuning.freeze = plan::FreezeOptions{
        .trainable_layers = 1,
        .extra_modules = llama ? std::vector<std::string>{"embed_tokens", "norm", "lm_head"}
                               : std::vector<std::string>{"wte", "wpe", "ln_f"}};
  }
  return model::build(plan::parse_hf_config(config, c.model), options);
}

// The step's rows are numbered over ranks and micro-batches, so that every split sees the same.
tensor::Batch make_batch(int64_t step, int64_t part) {
  const auto rows = at::arange(kRows) + (step * 64 + part) * kRows;
  const auto positions = at::arange(kTokens + 1);
  const auto text =
      (rows.unsqueeze(1) * 7 + positions * positions * 3 + rows.unsqueeze(1) * positions) %
      kVocabulary;
  return {text.slice(1, 0, kTokens).contiguous(), text.slice(1, 1, kTokens + 1).contiguous(), rows,
          kRows * kTokens};
}

optim::Offload offload_of(const std::string& word) {
  optim::Offload offload;
  if (word != "none") offload.states = Medium::kPinnedHost;
  if (word == "half") offload.ratio = 0.5;
  if (word == "all") offload.parameters = Medium::kPinnedHost;
  return offload;
}

std::string describe(const char* what, const std::vector<tensor::TensorSlice>& slices) {
  std::string text;
  for (const auto& slice : slices) {
    const auto host = slice.data.cpu();
    const auto* data = static_cast<const std::byte*>(host.const_data_ptr());
    text += fmt::format("{} {} {} {} {}\n", what, slice.name, slice.begin, slice.end,
                        digest(std::span(data, host.nbytes())));
  }
  return text;
}

// Of tensors of any size: the models are tiny.
std::shared_ptr<tensor::HostStash> make_stash(at::Device device) {
  return std::make_shared<tensor::HostStash>(
      tensor::make_copy_engine(device), tensor::StashOptions{.smallest = 1, .slab_bytes = 4096});
}

}  // namespace

std::string TrainingCase::text() const {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", model, stage, micro_batches,
                     int{recompute}, int{float64}, ranks, int{cuda}, backend, local_size, offload,
                     int{clips}, int{stash});
}

TrainingCase TrainingCase::parse(const std::string& text) {
  TrainingCase c;
  std::istringstream(text) >> c.model >> c.stage >> c.micro_batches >> c.recompute >> c.float64 >>
      c.ranks >> c.cuda >> c.backend >> c.local_size >> c.offload >> c.clips >> c.stash;
  return c;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, model] : models()) names.push_back(name);
  return names;
}

std::string run_case(const TrainingCase& c, comm::Group& world) {
  const auto model = build_model(c);
  const algorithms::Pretrain algorithm(*model);
  const auto device = c.cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  parallel::Sharded sharded(model->table(),
                            {.stage = parallel::kStages[c.stage],
                             .recompute = c.recompute,
                             .stash = c.stash ? make_stash(device) : nullptr,
                             .fp32_gradients = c.micro_batches > 1,
                             .device = device,
                             .offload = offload_of(c.offload)},
                            world);
  sharded.initialise(5);
  optim::AdamW optimizer(sharded.owned_ranges(), {.weight_decay = 0.1}, sharded.memory());
  const int64_t num_targets = kRows * kTokens * c.micro_batches * world.size();
  train::Phases phases;
  std::string text;
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<tensor::Batch> batches;
    for (int64_t k = 0; k < c.micro_batches; ++k) {
      batches.push_back(make_batch(step, k * world.size() + world.rank()));
    }
    const auto done = train::update(
        {algorithm, sharded, optimizer, phases},
        {batches, {.targets = num_targets}, {.seed = 3, .step = step}},
        {.learning_rate = 1e-2, .max_grad_norm = c.clips ? 1.0 : 0.0, .skips_non_finite = c.clips});
    text += describe("gradient", sharded.gradient_slices());
    text += fmt::format("number {:a}\nnumber {:a}\n", world.sum(done.loss.item<double>()),
                        done.norm.norm.item<double>());
  }
  return text + describe("parameter", sharded.slices_to_save(Access::kRead)) +
         describe("state", sharded.slices_to_save(optimizer.states()));
}

std::vector<std::string> run_on_threads(const TrainingCase& c) {
  std::vector<std::string> texts(c.ranks);
  comm::run_ranks(
      c.ranks, [&](comm::Group& world) { texts[world.rank()] = run_case(c, world); },
      std::chrono::minutes(5), c.local_size);
  return texts;
}

std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("number ")) numbers.push_back(std::strtod(line.c_str() + 7, nullptr));
  }
  return numbers;
}

}  // namespace skein::ranks
