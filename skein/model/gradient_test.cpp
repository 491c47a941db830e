// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Gradients of whole models: against finite differences, and across the unit boundary.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "skein/model/tiny_models.h"

namespace skein::model {
namespace {

struct NamedCase {
  std::string name;
  plan::HfConfig config;
  BuildOptions options;
};

std::vector<NamedCase> gradient_cases() {
  const std::string no_dropout = R"(, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0)";
  const std::string tied = R"(, "tie_word_embeddings": true)";
  const auto lora = [](const std::string& keys) { return BuildOptions{.tuning = tiny_lora(keys)}; };
  // Adapters beside one block, the other and all roots train.
  auto mixed_llama = tiny_lora(R"("target_modules": ["q_proj", "down_proj"],
      "layers_to_transform": [1])");
  mixed_llama.freeze = {.trainable_layers = -1, .extra_modules = {"embed_tokens", "norm"}};
  auto mixed_gpt = tiny_lora(R"("target_modules": ["c_attn"], "layers_to_transform": [0])");
  mixed_gpt.freeze = {.trainable_layers = 1, .extra_modules = {"wte", "wpe", "ln_f"}};
  std::vector<NamedCase> cases = {
      {"llama tied", tiny_config(kTinyLlama, tied), {}},
      {"llama lora", tiny_config(kTinyLlama), lora(R"("target_modules": ["q_proj", "down_proj"])")},
      {"llama lora everywhere", tiny_config(kTinyLlama, tied),
       lora(R"("target_modules": ".*(_proj|embed_tokens|lm_head)$")")},
      {"llama lora with dropout", tiny_config(kTinyLlama),
       lora(R"("target_modules": "all-linear", "lora_dropout": 0.3)")},
      {"llama saved modules", tiny_config(kTinyLlama, tied),
       lora(R"("target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "norm"])")},
      {"llama block 1 frozen", tiny_config(kTinyLlama, tied), {.tuning = mixed_llama}},
      {"llama attention dropout", tiny_config(kTinyLlama, R"(, "attention_dropout": 0.3)"), {}},
      {"phi3 lora on fused projections", tiny_config(kTinyPhi),
       lora(R"("target_modules": ["qkv_proj"])")},
      {"qwen3 with biases", tiny_config(kTinyQwen3, R"(, "attention_bias": true)"), {}},
      {"gpt2 tied", tiny_config(kTinyGpt, no_dropout), {}},
      {"gpt2 untied", tiny_config(kTinyGpt, no_dropout + R"(, "tie_word_embeddings": false)"), {}},
      {"gpt2 lora everywhere", tiny_config(kTinyGpt),
       lora(R"("target_modules": ["c_attn", "c_proj", "c_fc", "wte", "wpe", "lm_head"])")},
      {"gpt2 block 0 frozen", tiny_config(kTinyGpt), {.tuning = mixed_gpt}},
  };
  for (const auto& family : tiny_families()) {
    const auto config = tiny_config(family);
    cases.push_back({config.family, config, {}});
  }
  return cases;
}

std::vector<at::Tensor> trainable_leaves(const Model& model) {
  std::vector<at::Tensor> leaves;
  for (const auto& p : model.table().parameters) {
    if (p.trainable) leaves.push_back(*p.slot);
  }
  return leaves;
}

double loss_at(const Model& model, const tensor::Batch& batch) {
  const at::NoGradGuard no_grad;
  tensor::PlainUnits units;
  return loss_sum(model, batch, units).item<double>();
}

// Slope of the loss along `direction`, by central differences.
double measured_slope(const Model& model, const tensor::Batch& batch, at::Tensor parameter,
                      const at::Tensor& direction) {
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  parameter += direction * kStep;
  const double above = loss_at(model, batch);
  parameter -= direction * (2 * kStep);
  const double below = loss_at(model, batch);
  parameter += direction * kStep;
  return (above - below) / (2 * kStep);
}

TEST(Gradients, OfEveryParameterEqualFiniteDifferences) {
  const auto batch = tiny_batch(2, 5);
  for (const auto& c : gradient_cases()) {
    const auto model = tiny_model(c.config, c.options);
    tensor::PlainUnits units;
    const auto leaves = trainable_leaves(*model);
    const auto gradients = torch::autograd::grad({loss_sum(*model, batch, units)}, leaves);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const auto direction = at::randn(leaves[i].sizes(), at::kDouble);
      const double slope = (gradients[i] * direction).sum().item<double>();
      EXPECT_NEAR(slope, measured_slope(*model, batch, leaves[i], direction),
                  1e-6 * (1 + std::abs(slope)))
          << c.name << ", trainable parameter " << i;
    }
  }
}

// Holds each unit's leaves, and the sums of what comes back for them.
class HeldUnits final : public tensor::Units {
 public:
  HeldUnits(const tensor::ParameterTable& table, bool recompute)
      : leaves_(table.units.size()), sums_(table.units.size()), recompute_(recompute) {
    for (const auto& p : table.parameters) {
      if (p.trainable) leaves_[static_cast<size_t>(p.unit)].push_back(*p.slot);
    }
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i].resize(leaves_[i].size());
  }

  void acquire(int, Pass) override {}
  void release(int, Pass) override {}
  std::span<const at::Tensor> leaves(int unit) override {
    return leaves_[static_cast<size_t>(unit)];
  }
  bool recompute(int) const override { return recompute_; }
  void add_gradients(int unit, tensor::Tensors gradients) override {
    auto& sums = sums_[static_cast<size_t>(unit)];
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      sums[i] = sums[i].defined() ? sums[i] + gradients[i] : gradients[i];
    }
  }

  std::vector<tensor::Tensors> leaves_, sums_;

 private:
  bool recompute_;
};

TEST(Gradients, AcrossTheUnitBoundaryEqualPlainAutogradBitForBit) {
  const auto batch = tiny_batch(2, 5);
  for (const auto& c : gradient_cases()) {
    const auto model = tiny_model(c.config, c.options);
    tensor::PlainUnits plain;
    const auto expected_loss = loss_sum(*model, batch, plain);
    for (const bool recompute : {false, true}) {
      HeldUnits units(model->table(), recompute);
      const auto loss = loss_sum(*model, batch, units);
      EXPECT_TRUE(at::equal(loss, expected_loss)) << c.name;
      torch::autograd::backward({loss}, {});
      for (size_t unit = 0; unit < units.leaves_.size(); ++unit) {
        if (units.leaves_[unit].empty()) continue;
        const auto expected =
            torch::autograd::grad({loss_sum(*model, batch, plain)}, units.leaves_[unit]);
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_TRUE(units.sums_[unit][i].defined())
              << c.name << ", unit " << unit << ", leaf " << i;
          EXPECT_TRUE(at::equal(units.sums_[unit][i], expected[i]))
              << c.name << ", unit " << unit << ", leaf " << i << ", recompute " << recompute;
        }
      }
    }
  }
}

// Counts the blocks that backward enters.
class CountedUnits final : public tensor::Units {
 public:
  explicit CountedUnits(const tensor::ParameterTable& table) : table_(table) {
    leaves_.resize(table.units.size());
    for (const auto& p : table.parameters) {
      if (p.trainable) leaves_[static_cast<size_t>(p.unit)].push_back(*p.slot);
    }
  }
  void acquire(int unit, Pass pass) override {
    blocks_ += pass == Pass::kBackward && !table_.units[static_cast<size_t>(unit)].root ? 1 : 0;
  }
  void release(int, Pass) override {}
  std::span<const at::Tensor> leaves(int unit) override {
    return leaves_[static_cast<size_t>(unit)];
  }
  bool recompute(int unit) const override { return !table_.units[static_cast<size_t>(unit)].root; }
  void add_gradients(int, tensor::Tensors) override {}

  int blocks() const { return blocks_; }

 private:
  const tensor::ParameterTable& table_;
  std::vector<tensor::Tensors> leaves_;
  int blocks_ = 0;
};

// Of a tied model, whose embedding, final norm and head are one unit. An embedding that trains
// needs the gradients of the first block's inputs, and so all blocks, frozen or not.
TEST(Gradients, RunThroughFrozenBlocksForATrainableEmbeddingAlone) {
  const auto blocks_entered = [](const plan::Tuning& tuning) {
    const auto model = tiny_model(tiny_config(kTinyGpt), {.tuning = tuning});
    CountedUnits units(model->table());
    torch::autograd::backward({loss_sum(*model, tiny_batch(2, 5), units)}, {});
    return units.blocks();
  };
  const auto frozen = [](int64_t layers, const char* module) {
    return plan::Tuning{
        .freeze = plan::FreezeOptions{.trainable_layers = layers, .extra_modules = {module}}};
  };
  EXPECT_EQ(blocks_entered(frozen(0, "ln_f")), 0);
  EXPECT_EQ(blocks_entered(frozen(1, "ln_f")), 1);
  EXPECT_EQ(blocks_entered(frozen(0, "wte")), 2);
  EXPECT_EQ(blocks_entered(tiny_lora(R"("target_modules": ["lm_head"])")), 0);
  EXPECT_EQ(blocks_entered(tiny_lora(R"("target_modules": ["wte"])")), 2);
}

// A model in 4 bits, with adapters that do something, and one with the values that its bits stand
// for.
struct PackedPair {
  std::unique_ptr<Model> packed, plain;
};

PackedPair packed_pair(const plan::HfConfig& config, const std::string& keys, bool doubly) {
  auto tuning = tiny_lora(keys);
  PackedPair pair{.packed = {}, .plain = build(config, {.tuning = tuning})};
  tuning.four_bits = plan::FourBits{.doubly = doubly};
  pair.packed = build(config, {.tuning = tuning});
  materialise(pair.packed->table(), at::kCPU, 3);
  const auto& ours = pair.packed->table().parameters;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].trainable) {
      *ours[i].slot = (at::randn(ours[i].shape) * 0.4).set_requires_grad(true);
    }
    auto& other = *pair.plain->table().parameters[i].slot;
    other = ours[i].slot->detach().clone().set_requires_grad(ours[i].trainable);
    if (!ours[i].packed) continue;
    const auto& shape = ours[i].packed->shape;
    other = ops::dequantise_nf4(other, {.rows = shape[0], .columns = shape[1], .doubly = doubly},
                                at::kFloat);
  }
  return pair;
}

TEST(FourBits, ComputeWhatTheirValuesDo) {
  at::manual_seed(21);
  for (const auto& family : tiny_families()) {
    const auto config = tiny_config(family);
    // All layers, as DoRA too, or some: the others have no adapter.
    for (const std::string keys : {R"("target_modules": "all-linear")",
                                   R"("target_modules": "all-linear", "use_dora": true,
                                      "lora_dropout": 0.2)",
                                   R"("target_modules": ".*(o_proj|attn.c_proj|out)$")"}) {
      const auto [packed, plain] = packed_pair(config, keys, keys.size() % 2 == 0);
      const auto batch = tiny_batch(2, 5);
      const auto gradients = [&](const Model& model) {
        tensor::PlainUnits units;
        const auto loss = loss_sum(model, batch, units);
        auto found = torch::autograd::grad({loss}, trainable_leaves(model));
        found.push_back(loss.detach());
        return found;
      };
      const auto found = gradients(*packed), expected = gradients(*plain);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(found[i].allclose(expected[i], 1e-4, 1e-5)) << config.family << keys << i;
      }
      EXPECT_GT(found.front().abs().max().item<double>(), 0);
    }
  }
}

}  // namespace
}  // namespace skein::model
