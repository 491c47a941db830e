// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What of a model trains: all of it, some of its own parameters, or adapters beside them.
//
// A description that plans, the launcher and model::build() share. Free of torch.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/core/dtype.h"
#include "skein/plan/families/architecture.h"

namespace skein::plan {

// LLaMA-Factory's `finetuning_type: freeze`: some blocks train, or some modules of them.
struct FreezeOptions {
  // The last N blocks; negative: the first N.
  int64_t trainable_layers = 2;
  // Paths inside a block ("mlp", "self_attn", "self_attn.q_proj"), or "all".
  std::vector<std::string> trainable_modules{"all"};
  // Words for modules outside of blocks ("lm_head"): every parameter with one in its name trains.
  std::vector<std::string> extra_modules{};
  // Of `trainable_layers` groups of blocks, the last one of each: blocks that were inserted.
  bool use_llama_pro = false;
};

// The frozen weights of linear layers in blocks are held in 4 bits.
struct FourBits {
  bool doubly = true;  // double_quantization
};

// Neither: everything trains.
struct Tuning {
  // PEFT's adapters on `targets`; of the model's own parameters modules_to_save alone train.
  std::optional<adapter::AdapterConfig> lora{};
  // The adapter_config.json that says so; empty: the run's keys.
  std::string lora_file{};
  // These of the model's own parameters train.
  std::optional<FreezeOptions> freeze{};
  // Beside adapters.
  std::optional<FourBits> four_bits{};
};

// Of adapters beside weights of a type, in memory and in files: 16 bits would lose small steps.
inline DType adapter_dtype(DType weights) {
  return dtype_bytes(weights) < 4 ? DType::kF32 : weights;
}

// An adapter of a module: scale · B · A beside its weight.
struct LoraShape {
  int64_t rank = 0;
  double scale = 1;
  double dropout = 0;  // of its input
  bool dora = false;
};

// What a Tuning comes to in one model.
struct TunedModel {
  // The model's own, or with a head of its own: where a tied embedding or head is one of
  // modules_to_save, PEFT trains a copy of it alone.
  std::shared_ptr<const Architecture> architecture;
  // The adapters among them, each behind its module's parameters, under PEFT's names without the
  // prefix "base_model.model.".
  Shapes shapes;
  std::map<std::string, LoraShape> adapters;  // by module ("model.layers.0.self_attn.q_proj")
};

// Throws UserError for targets, modules and layers that the model does not have, with the nearest
// names, and when nothing would train.
TunedModel tune(const std::shared_ptr<const Architecture>& architecture, const Tuning& tuning);

}  // namespace skein::plan
