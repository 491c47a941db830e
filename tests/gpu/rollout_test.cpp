// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Generation on one GPU: the CPU's texts, whatever the cache holds, and again after weights have
// changed.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "skein/model/model.h"
#include "skein/ops/device.h"
#include "skein/plan/hf_config.h"
#include "skein/rollout/generate.h"

namespace skein::ranks {
namespace {

const std::vector<std::string> kModels{
    R"({"model_type": "llama", "vocab_size": 509, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})",
    R"({"model_type": "mistral", "vocab_size": 509, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "sliding_window": 30})",
    R"({"model_type": "qwen3", "vocab_size": 509, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 128})",
    R"({"model_type": "gemma2", "vocab_size": 509, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "query_pre_attn_scalar": 48, "sliding_window": 40, "attn_logit_softcapping": 20.0,
        "final_logit_softcapping": 30.0})",
    R"({"model_type": "llama", "vocab_size": 509, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})",
    R"({"model_type": "gpt2", "vocab_size": 509, "n_positions": 512, "n_embd": 256, "n_layer": 2,
        "n_head": 4})"};

std::unique_ptr<model::Model> model_on(at::Device device, const std::string& config,
                                       at::ScalarType dtype) {
  const c10::DeviceGuard guard(device);
  auto model = model::build(plan::parse_hf_config(config, "config.json"), {.dtype = dtype});
  model::materialise(model->table(), device, /*seed=*/3);
  // First weights say nearly nothing: what is drawn would not depend on attention.
  const at::NoGradGuard no_grad;
  for (const auto& parameter : model->table().parameters) {
    if (parameter.shape.size() == 2) parameter.slot->mul_(4);
  }
  return model;
}

std::vector<rollout::Request> some_requests() {
  std::vector<rollout::Request> requests;
  for (uint64_t prompt = 0; prompt < 12; ++prompt) {
    std::vector<int64_t> tokens;
    for (uint64_t i = 0; i < 3 + 11 * prompt; ++i) {
      tokens.push_back(static_cast<int64_t>((i * i * 31 + prompt * 7) % 509));
    }
    for (uint64_t sample = 0; sample < 3; ++sample) requests.push_back({tokens, prompt, sample});
  }
  return requests;
}

rollout::GenerateOptions some_options() {
  return {.sampling = {.temperature = 0.9, .seed = 4},
          .max_new_tokens = 60,
          .stop_tokens = {17, 300},
          .log_probs = true};
}

using Texts = std::vector<rollout::Continuation>;

int num_different(const Texts& a, const Texts& b) {
  int different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += a[i].tokens != b[i].tokens;
  return different;
}

Texts run_on(at::Device device, const std::string& config,
             const rollout::GenerateOptions& options) {
  const c10::DeviceGuard guard(device);
  const auto model = model_on(device, config, at::kFloat);
  tensor::PlainUnits units;
  return rollout::generate(*model, units, device, some_requests(), options);
}

const at::Device kGpu(at::kCUDA, 0);

// In float32 a draw may fall beside a boundary.
TEST(Rollout, TextsAreThoseOfTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto& config : kModels) {
    for (auto options : {some_options(), rollout::GenerateOptions{.sampling = {.temperature = 0},
                                                                  .max_new_tokens = 40}}) {
      const auto cpu = run_on(at::kCPU, config, options), gpu = run_on(kGpu, config, options);
      EXPECT_LE(num_different(cpu, gpu), 2) << config;
      for (size_t i = 0; i < cpu.size(); ++i) {
        if (cpu[i].tokens != gpu[i].tokens) continue;
        EXPECT_EQ(cpu[i].finish, gpu[i].finish);
        for (size_t j = 0; j < cpu[i].log_probs.size(); ++j) {
          EXPECT_NEAR(cpu[i].log_probs[j], gpu[i].log_probs[j], 1e-3);
        }
      }
    }
  }
}

TEST(Rollout, TextsDoNotDependOnTheCache) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto& config : kModels) {
    const auto free = run_on(kGpu, config, some_options());
    const auto model = model_on(kGpu, config, at::kFloat);
    for (const int64_t pages : {13, 30, 60}) {
      auto options = some_options();
      options.cache_bytes = pages * model->make_cache().page_bytes();
      EXPECT_LE(num_different(run_on(kGpu, config, options), free), 2) << config << pages;
    }
    auto options = some_options();
    options.max_rows = 5;
    options.pass_tokens = 40;
    EXPECT_LE(num_different(run_on(kGpu, config, options), free), 2) << config;
  }
}

// What was recorded reads the weights that are there, also after the cache has moved.
TEST(Rollout, RecordedPassesReadNewWeights) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const c10::DeviceGuard guard(kGpu);
  const auto model = model_on(kGpu, kModels[0], at::kFloat);
  tensor::PlainUnits units;
  rollout::Generator generator(*model, units, kGpu);
  const auto requests = some_requests();
  const auto first = generator.generate(requests, some_options());
  EXPECT_LE(num_different(generator.generate(requests, some_options()), first), 2);
  {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : model->table().parameters) {
      if (parameter.shape.size() == 2) parameter.slot->mul_(1.1);
    }
  }
  const auto other = at::empty({1 << 20}, at::TensorOptions(kGpu));  // the cache lies elsewhere
  const auto found = generator.generate(requests, some_options());
  const auto anew = rollout::generate(*model, units, kGpu, requests, some_options());
  EXPECT_LE(num_different(found, anew), 2);
  EXPECT_GT(num_different(found, first), 5);
  generator.generate(requests, some_options());
  const auto held = ops::device_memory(true).allocated;
  generator.generate(requests, some_options());
  EXPECT_EQ(ops::device_memory(true).allocated, held);  // and no cache
}

TEST(Rollout, PenaltiesAndSixteenBits) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const c10::DeviceGuard guard(kGpu);
  for (const auto& config : kModels) {
    const auto model = model_on(kGpu, config, at::kBFloat16);
    tensor::PlainUnits units;
    auto options = some_options();
    options.sampling.repetition_penalty = 1.2;
    options.sampling.top_p = 0.95;
    const auto found = rollout::generate(*model, units, kGpu, some_requests(), options);
    for (const auto& text : found) {
      EXPECT_FALSE(text.tokens.empty());
      for (const auto log_prob : text.log_probs) EXPECT_LE(log_prob, 1e-6);
    }
  }
}

}  // namespace
}  // namespace skein::ranks
