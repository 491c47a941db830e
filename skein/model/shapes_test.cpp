// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/shapes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/model/tiny_models.h"
#include "skein/ops/linear_cross_entropy.h"
#include "skein/plan/cost/memory_estimate.h"
#include "skein/plan/families/families.h"
#include "skein/tensor/shard_layout.h"
#include "skein/tensor/test_allocations.h"

namespace skein::model {
namespace {

std::vector<plan::HfConfig> shape_cases() {
  std::vector<plan::HfConfig> cases = {
      plan::parse_hf_config(R"({"model_type": "llama", "vocab_size": 19, "hidden_size": 8,
          "intermediate_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2,
          "tie_word_embeddings": true})",
                            "tied"),
      tiny_config(kTinyGpt, R"(, "tie_word_embeddings": false)"),
      tiny_config(kTinyGpt, R"(, "n_inner": 10)")};
  for (const auto& family : tiny_families()) {
    cases.push_back(tiny_config(family));
    auto scored = cases.back().architecture->scored();
    if (!scored) continue;
    cases.push_back(cases.back());
    cases.back().architecture = std::move(scored);
  }
  return cases;
}

TEST(Families, EveryOneHasATinyModel) {
  const auto families = plan::families();
  ASSERT_EQ(tiny_families().size(), families.size()) << "tiny_models.h";
  for (size_t i = 0; i < families.size(); ++i) {
    EXPECT_EQ(tiny_config(tiny_families()[i]).family, families[i].model_type);
  }
}

plan::Tuning in_four_bits(plan::Tuning tuning, bool doubly) {
  tuning.four_bits = plan::FourBits{.doubly = doubly};
  return tuning;
}

// Nothing, adapters of every kind, beside weights in 4 bits too, a head that is trained whole, and
// frozen blocks.
std::vector<plan::Tuning> tunings_of(const plan::HfConfig& config) {
  std::vector<plan::Tuning> tunings = {
      {},
      tiny_lora(R"("target_modules": "all-linear", "use_dora": true)"),
      tiny_lora(R"("target_modules": ".*", "rank_pattern": {"lm_head": 3})"),
      in_four_bits(tiny_lora(R"("target_modules": "all-linear", "use_dora": true)"), true),
      in_four_bits(tiny_lora(R"("target_modules": ".*(embed_tokens|wte|tokens)$")"), false),
      {.freeze = plan::FreezeOptions{.trainable_layers = 1}}};
  if (const bool scores = config.dimensions().scores; scores || config.architecture->untied()) {
    tunings.push_back(
        tiny_lora(fmt::format(R"("target_modules": "all-linear", "modules_to_save": ["{}"])",
                              scores ? "score" : "lm_head")));
  }
  return tunings;
}

TEST(Shapes, AreThoseOfTheRealModel) {
  for (const auto& config : shape_cases()) {
    for (const auto& tuning : tunings_of(config)) {
      const auto model = build(config, {.dtype = at::kBFloat16, .tuning = tuning});
      const auto& table = model->table();
      const auto shapes = plan::tune(config.architecture, tuning).shapes;
      ASSERT_EQ(shapes.units.size(), table.units.size()) << config.source;
      for (size_t i = 0; i < shapes.units.size(); ++i) {
        EXPECT_EQ(shapes.units[i].name, table.units[i].name);
        EXPECT_EQ(shapes.units[i].root, table.units[i].root);
      }
      ASSERT_EQ(shapes.parameters.size(), table.parameters.size()) << config.source;
      for (size_t i = 0; i < shapes.parameters.size(); ++i) {
        const auto& expected = shapes.parameters[i];
        const auto& found = table.parameters[i];
        EXPECT_EQ(expected.name, found.name);
        EXPECT_EQ(expected.shape, found.file_shape()) << found.name;
        EXPECT_EQ(expected.padded_rows, found.padded_rows);
        const bool packed = found.packed.has_value();
        EXPECT_EQ(packed ? expected.packed_bytes : expected.memory_numel(), found.memory_numel());
        EXPECT_EQ(expected.packed_bytes > 0, packed) << found.name;
        EXPECT_EQ(expected.unit, found.unit) << found.name;
        EXPECT_EQ(expected.decay, found.decay) << found.name;
        EXPECT_EQ(expected.trainable, found.trainable) << found.name;
        const auto dtype = packed ? at::kByte : expected.adapter ? at::kFloat : at::kBFloat16;
        EXPECT_EQ(dtype, found.dtype) << found.name;
      }
      EXPECT_EQ(shapes.numel(), table.num_elements());
    }
  }
}

void expect_flat_bytes(const plan::HfConfig& config, const plan::Tuning& tuning, int ranks) {
  const auto model = build(config, {.dtype = at::kBFloat16, .tuning = tuning});
  const auto shapes = plan::tune(config.architecture, tuning).shapes;
  int64_t weights = 0, gradients = 0, states = 0;  // whole
  for (const auto& segment : tensor::lay_out(model->table(), ranks)) {
    const bool wide = segment.dtype == at::kFloat;
    weights += segment.whole_size * static_cast<int64_t>(c10::elementSize(segment.dtype));
    if (!segment.trainable) continue;
    gradients += segment.whole_size * 4;
    states += segment.whole_size * (wide ? 8 : 12);
  }
  for (const int stage : {0, 1, 2, 3}) {
    const auto bytes = plan::flat_bytes(shapes, {.stage = stage,
                                                 .ranks = ranks,
                                                 .weight_bytes = 2,
                                                 .gradient_bytes = 4,
                                                 .state_bytes = 12});
    EXPECT_EQ(bytes.weights, stage < 3 ? weights : weights / ranks);
    EXPECT_EQ(bytes.gradients, stage < 2 ? gradients : gradients / ranks);
    EXPECT_EQ(bytes.states, stage < 1 ? states : states / ranks);
    EXPECT_EQ(bytes.transient > 0, stage >= 2);
  }
}

TEST(MemoryEstimate, FlatBytesAreThoseOfTheLayout) {
  for (const auto& config : shape_cases()) {
    for (const auto& tuning : tunings_of(config)) {
      for (const int ranks : {1, 2, 3}) expect_flat_bytes(config, tuning, ranks);
    }
  }
}

TEST(MemoryEstimate, RecomputeKeepsTheInputsOfBlocks) {
  const auto config = tiny_config(kTinyGpt, R"(, "attn_pdrop": 0.0)");
  const auto kept = [&](const plan::MemoryQuestion& question) {
    return plan::activation_bytes(config.shapes(), config.dimensions(), question).kept;
  };
  const plan::MemoryQuestion question{.weight_bytes = 4, .rows = 3, .tokens = 5};
  // 2 layers x (4 x 8 + 2 x 8 + 2 x 8 + 2 x 32) + 4 x 8
  EXPECT_EQ(kept(question), 4 * 3 * 5 * (2 * 128 + 32));
  auto again = question;
  again.recompute = true;
  EXPECT_EQ(kept(again), 4 * 3 * 5 * (2 * 8 + 128 + 32));
}

TEST(MemoryEstimate, OffloadedInputsLieOnTheHostButForTwo) {
  const auto config = tiny_config(kTinyGpt, R"(, "attn_pdrop": 0.0, "n_layer": 5)");
  const auto bytes = [&](bool offload, bool cuda) {
    return plan::activation_bytes(config.shapes(), config.dimensions(),
                                  {.weight_bytes = 2,
                                   .rows = 3,
                                   .tokens = 5,
                                   .recompute = true,
                                   .offload_activations = offload,
                                   .cuda = cuda});
  };
  EXPECT_EQ(bytes(false, true).host, 0);
  EXPECT_EQ(bytes(true, true).host, 2 * 3 * 5 * 5 * 8);
  EXPECT_EQ(bytes(false, true).kept - bytes(true, true).kept, 2 * 3 * 5 * (5 - 2) * 8);
  // On CPU ranks the host's memory is the device's.
  EXPECT_EQ(bytes(true, false).host, 0);
  EXPECT_EQ(bytes(true, false).kept, bytes(false, false).kept);
}

TEST(MemoryEstimate, KnowsTheHeadsChunks) {
  EXPECT_EQ(plan::kLogitsBytes, ops::HeadOptions().logits_bytes);
  EXPECT_EQ(plan::kCudaChunkFactor, ops::kCudaChunkFactor);
}

// A Llama of 1.24B parameters, 4 x 4096 tokens in bf16 on one GPU.
TEST(MemoryEstimate, WholeGradientsAndActivationsAreNotThereAtOnce) {
  const auto config = plan::parse_hf_config(
      R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048,
          "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
          "num_key_value_heads": 8, "tie_word_embeddings": true})",
      "1.24B");
  const auto shapes = config.shapes();
  plan::MemoryQuestion question{.weight_bytes = 2,
                                .gradient_bytes = 2,
                                .state_bytes = 12,
                                .rows = 4,
                                .tokens = 4096,
                                .cuda = true};
  const auto flat = plan::flat_bytes(shapes, question);
  const auto activations = plan::activation_bytes(shapes, config.dimensions(), question);
  const double gib = 1 << 30;
  EXPECT_NEAR(static_cast<double>(flat.held()) / gib, 18.4, 0.1);
  EXPECT_NEAR(static_cast<double>(activations.kept) / gib, 18.8, 0.1);
  // 128,256 x 2,048 fp32 sums, 2,093 rows of logits, 16,384 of d_hidden
  EXPECT_NEAR(static_cast<double>(activations.head) / gib, 1.57, 0.02);
  const auto peak = plan::step_peak(flat, activations, question);
  EXPECT_EQ(peak, flat.held() - flat.gradients + activations.kept + activations.head);
  EXPECT_NEAR(static_cast<double>(peak) / gib, 36.4, 0.2);
  question.micro_batches = 2;
  EXPECT_EQ(plan::step_peak(flat, activations, question), flat.peak() + activations.peak());
}

// GPT-2's own configuration: 0.1. Fused attention keeps no scores.
TEST(MemoryEstimate, CountsTheScoresThatDropoutKeeps) {
  const plan::MemoryQuestion question{.weight_bytes = 2, .rows = 3, .tokens = 5};
  const auto kept = [&](const char* more, plan::MemoryQuestion asked) {
    const auto config = tiny_config(kTinyGpt, more);
    return plan::activation_bytes(config.shapes(), config.dimensions(), asked).kept;
  };
  const char* const without = R"(, "attn_pdrop": 0.0)";
  const char* const with = R"(, "attn_pdrop": 0.1)";
  const int64_t block = 3 * 2 * 5 * 5 * (4 + 2);  // fp32 softmax, 16-bit product
  EXPECT_EQ(kept(with, question) - kept(without, question), 2 * block);
  auto again = question;
  again.recompute = true;
  EXPECT_EQ(kept(with, again) - kept(without, again), block);
}

// What a forward pass has left for backward.
int64_t kept_by_forward(const plan::HfConfig& config, const plan::Tuning& tuning) {
  const auto model = build(config, {.tuning = tuning});
  materialise(model->table(), at::kCPU, 1);
  const auto batch = tiny_batch(4, 64);
  tensor::PlainUnits units;
  const tensor::AllocationMeter meter;
  const auto hidden = model->forward(batch, kTinyStep, units);
  return meter.live_bytes();
}

// Beside LoRA, measured. DoRA's vectors, which do not grow with the tokens, are not in the
// estimate: hence the three percent.
TEST(MemoryEstimate, CountsWhatDoraKeeps) {
  const auto llama = tiny_config(kTinyLlama, R"(, "max_position_embeddings": 64)");
  const auto gpt = tiny_config(kTinyGpt, R"(, "n_positions": 64, "embd_pdrop": 0,
      "attn_pdrop": 0, "resid_pdrop": 0)");
  for (const auto& config : {llama, gpt}) {
    for (const bool drops : {false, true}) {
      const auto tuning = [&](const char* more) {
        return tiny_lora(R"("target_modules": "all-linear", "lora_dropout": )" +
                         std::string(drops ? "0.1" : "0.0") + more);
      };
      const auto lora = tuning(""), dora = tuning(R"(, "use_dora": true)");
      const auto estimate = [&](const plan::Tuning& asked) {
        const plan::MemoryQuestion question{.rows = 4, .tokens = 64, .adapter_dropout = drops};
        return plan::activation_bytes(plan::tune(config.architecture, asked).shapes,
                                      config.dimensions(), question)
            .kept;
      };
      const auto measured = kept_by_forward(config, dora) - kept_by_forward(config, lora);
      const auto estimated = estimate(dora) - estimate(lora);
      EXPECT_GT(estimated, 0);
      EXPECT_NEAR(static_cast<double>(estimated) / static_cast<double>(measured), 1, 0.03)
          << config.family << " " << drops << ": " << measured << " bytes";
    }
  }
}

TEST(MemoryEstimate, CountsWhatReductionsReceive) {
  const auto config = tiny_config(kTinyGpt);
  const auto unit = [&](int64_t ranks) {
    return plan::activation_bytes(config.shapes(), config.dimensions(),
                                  {.ranks = ranks, .gradient_bytes = 4})
        .unit;
  };
  EXPECT_GT(unit(2), unit(1));
}

}  // namespace
}  // namespace skein::model
