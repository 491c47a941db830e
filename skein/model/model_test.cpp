// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <set>

#include "skein/core/error.h"
#include "skein/model/tiny_models.h"

namespace skein::model {
namespace {

std::map<std::string, const tensor::Parameter*> by_name(const Model& model) {
  std::map<std::string, const tensor::Parameter*> found;
  for (const auto& p : model.table().parameters) found[p.name] = &p;
  return found;
}

std::set<std::string> names_of(const Model& model) {
  std::set<std::string> names;
  for (const auto& p : model.table().parameters) names.insert(p.name);
  return names;
}

TEST(Table, LlamaHasHuggingFaceNamesAndShapes) {
  const auto model = build(tiny_config(kTinyLlama));
  std::set<std::string> expected{"model.embed_tokens.weight", "model.norm.weight",
                                 "lm_head.weight"};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const auto* norm : {"input_layernorm", "post_attention_layernorm"}) {
      expected.insert(layer + norm + ".weight");
    }
    for (const auto* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      expected.insert(layer + part + ".weight");
      expected.insert(layer + part + ".bias");
    }
  }
  EXPECT_EQ(names_of(*model), expected);
  const auto table = by_name(*model);
  EXPECT_EQ(table.at("model.layers.0.self_attn.k_proj.weight")->shape,
            (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(table.at("model.layers.0.mlp.down_proj.weight")->shape, (std::vector<int64_t>{8, 12}));
}

TEST(Table, GptHasHuggingFaceNamesAndTransposedShapes) {
  const auto model = build(tiny_config(kTinyGpt));
  std::set<std::string> expected{"transformer.wte.weight", "transformer.wpe.weight",
                                 "transformer.ln_f.weight", "transformer.ln_f.bias"};
  for (const std::string layer : {"transformer.h.0.", "transformer.h.1."}) {
    for (const auto* part :
         {"ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
      expected.insert(layer + part + ".weight");
      expected.insert(layer + part + ".bias");
    }
  }
  EXPECT_EQ(names_of(*model), expected);
  const auto table = by_name(*model);
  EXPECT_EQ(table.at("transformer.h.0.attn.c_attn.weight")->shape, (std::vector<int64_t>{8, 24}));
  EXPECT_DOUBLE_EQ(table.at("transformer.h.0.mlp.c_proj.weight")->init.deviation,
                   0.01);  // 0.02 / √4
  EXPECT_DOUBLE_EQ(table.at("transformer.h.0.mlp.c_fc.weight")->init.deviation, 0.02);
}

TEST(Table, DecaysMatricesAlone) {
  const auto table_model = build(tiny_config(kTinyGpt));
  const auto table = by_name(*table_model);
  EXPECT_TRUE(table.at("transformer.wte.weight")->decay);
  EXPECT_TRUE(table.at("transformer.h.0.mlp.c_fc.weight")->decay);
  EXPECT_FALSE(table.at("transformer.h.0.mlp.c_fc.bias")->decay);
  EXPECT_FALSE(table.at("transformer.h.0.ln_1.weight")->decay);
}

TEST(Table, UnitsAreBlocksAndOneOrTwoRoots) {
  const auto roots = [](const Model& model) {
    int count = 0;
    for (const auto& unit : model.table().units) count += unit.root;
    return count;
  };
  const auto untied = build(tiny_config(kTinyLlama));
  EXPECT_EQ(untied->table().units.size(), 4U);
  EXPECT_EQ(roots(*untied), 2);
  const auto tied = build(tiny_config(kTinyGpt));
  EXPECT_EQ(tied->table().units.size(), 3U);
  EXPECT_EQ(roots(*tied), 1);
}

TEST(Table, LoraFreezesEverythingElse) {
  const auto model =
      build(tiny_config(kTinyLlama), {.lora = LoraOptions{.rank = 2, .targets = {"v_proj"}}});
  for (const auto& p : model->table().parameters) {
    EXPECT_EQ(p.trainable, p.name.find(".lora_") != std::string::npos) << p.name;
  }
  const auto table = by_name(*model);
  EXPECT_EQ(table.at("model.layers.1.self_attn.v_proj.lora_A.weight")->shape,
            (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(table.at("model.layers.1.self_attn.v_proj.lora_B.weight")->shape,
            (std::vector<int64_t>{4, 2}));
}

TEST(Table, FrozenBlocksAloneCarryAdapters) {
  const auto model = build(tiny_config(kTinyGpt),
                           {.lora = LoraOptions{.targets = {"c_attn"}}, .frozen_blocks = {1}});
  const auto table = by_name(*model);
  EXPECT_TRUE(table.at("transformer.wte.weight")->trainable);
  EXPECT_TRUE(table.at("transformer.h.0.attn.c_attn.weight")->trainable);
  EXPECT_FALSE(table.at("transformer.h.1.attn.c_attn.weight")->trainable);
  EXPECT_TRUE(table.at("transformer.h.1.attn.c_attn.lora_A.weight")->trainable);
  EXPECT_FALSE(table.contains("transformer.h.0.attn.c_attn.lora_A.weight"));
}

TEST(Build, RefusesAdaptersAndBlocksThatDoNotExist) {
  EXPECT_THROW(build(tiny_config(kTinyGpt), {.lora = LoraOptions{.targets = {"q_proj"}}}),
               UserError);
  EXPECT_THROW(build(tiny_config(kTinyGpt), {.frozen_blocks = {2}}), UserError);
}

TEST(Build, FreshAdaptersChangeNothing) {
  const auto config = tiny_config(kTinyLlama);
  const auto plain = build(config);
  const auto adapted = build(config, {.lora = LoraOptions{.targets = {"q_proj", "up_proj"}}});
  materialise(plain->table(), at::kCPU, 3);
  materialise(adapted->table(), at::kCPU, 3);
  tensor::PlainUnits units;
  const auto batch = tiny_batch(2, 4);
  EXPECT_TRUE(at::equal(plain->forward(batch, kTinyStep, units),
                        adapted->forward(batch, kTinyStep, units)));
}

TEST(Model, RunsOnTheMetaDevice) {
  for (const auto& family : tiny_families()) {
    const auto model = build(tiny_config(family), {.dtype = at::kBFloat16});
    materialise(model->table(), at::kMeta, 0);
    auto batch = tiny_batch(2, 5);
    for (auto* t : {&batch.tokens, &batch.targets, &batch.documents}) *t = t->to(at::kMeta);
    tensor::PlainUnits units;
    const auto hidden = model->forward(batch, kTinyStep, units);
    EXPECT_EQ(hidden.sizes(), (std::vector<int64_t>{2, 5, 8}));
    EXPECT_EQ(model->head_logits(hidden, units).sizes(), (std::vector<int64_t>{2, 5, 17}));
    EXPECT_EQ(model->head_loss_sum(hidden, batch.targets, {}, units).dim(), 0);
  }
}

// Gemma's logits have a cap.
TEST(Model, ThreeHeadsAgree) {
  for (const auto& family : {kTinyLlama, kTinyGemma2}) {
    const auto model = tiny_model(tiny_config(family));
    const auto batch = tiny_batch(2, 5);
    tensor::PlainUnits units;
    const auto hidden = model->forward(batch, kTinyStep, units);
    const auto index = batch.targets.clamp_min(0).unsqueeze(2);
    const auto expected =
        at::log_softmax(model->head_logits(hidden, units), 2).gather(2, index).squeeze(2) *
        batch.targets.ne(tensor::kIgnore);
    EXPECT_TRUE(at::allclose(model->head_log_probs(hidden, batch.targets, units), expected, 1e-12));
    const auto weights = at::arange(10, at::kDouble).view({2, 5});
    EXPECT_TRUE(at::allclose(model->head_loss_sum(hidden, batch.targets, weights, units),
                             -(expected * weights).sum(), 1e-12));
  }
}

// Two layers of windows of three: what a token sees ends four positions before it.
TEST(Decoder, AWindowEndsWhatATokenSees) {
  const auto model = tiny_model(tiny_config(kTinyMistral));
  tensor::PlainUnits units;
  auto batch = tiny_batch(1, 9);
  const auto before = model->forward(batch, kTinyStep, units);
  batch.tokens[0][1] = (batch.tokens[0][1] + 1).remainder(17);
  const auto after = model->forward(batch, kTinyStep, units);
  EXPECT_TRUE(at::equal(before.narrow(1, 6, 3), after.narrow(1, 6, 3)));
  EXPECT_FALSE(at::allclose(before.select(1, 5), after.select(1, 5)));
}

TEST(Decoder, NormsThatAddOneBeginAtZero) {
  const auto model = build(tiny_config(kTinyGemma3));
  materialise(model->table(), at::kCPU, 3);
  EXPECT_EQ(model->table().find("model.norm.weight")->slot->abs().max().item<double>(), 0);
  const auto llama = build(tiny_config(kTinyLlama));
  materialise(llama->table(), at::kCPU, 3);
  EXPECT_EQ(llama->table().find("model.norm.weight")->slot->min().item<double>(), 1);
}

// A leaf of the head has rows of zeros behind the vocabulary; no result shows them.
TEST(Model, PaddedRowsOfTheHeadAreNotSeen) {
  for (const auto& [vocabulary, rows] :
       {std::pair<int64_t, int64_t>{64, 64}, {257, 320}, {50257, 50304}, {151939, 151936 + 64}}) {
    for (const bool tied : {false, true}) {
      const auto config = tiny_config(
          kTinyLlama,
          fmt::format(R"(, "vocab_size": {}, "tie_word_embeddings": {})", vocabulary, tied));
      const auto model = build(config, {.dtype = at::kDouble});
      materialise(model->table(), at::kCPU, 3);
      const auto* head = model->table().find(tied ? "model.embed_tokens.weight" : "lm_head.weight");
      EXPECT_EQ(head->shape, (std::vector<int64_t>{vocabulary, 8}));
      const auto padded = *head->slot;
      ASSERT_EQ(padded.sizes(), (std::vector<int64_t>{rows, 8}));

      tensor::PlainUnits units;
      const auto batch = tiny_batch(2, 5);
      const auto run = [&](const at::Tensor& weight) {
        *head->slot = weight;
        const auto hidden = model->forward(batch, kTinyStep, units);
        EXPECT_EQ(model->head_logits(hidden, units).sizes(),
                  (std::vector<int64_t>{2, 5, vocabulary}));
        const auto loss = model->head_loss_sum(hidden, batch.targets, {}, units);
        return std::pair{loss, torch::autograd::grad({loss}, {weight})[0]};
      };
      const auto [loss, gradient] = run(padded);
      const auto [expected_loss, expected] =
          run(without_padding(*head, padded).detach().clone().set_requires_grad(true));
      EXPECT_TRUE(at::allclose(loss, expected_loss, 1e-12));
      EXPECT_TRUE(at::allclose(without_padding(*head, gradient), expected, 1e-10, 1e-14));
      EXPECT_EQ(gradient.slice(0, vocabulary).count_nonzero().item<int64_t>(), 0);
    }
  }
}

TEST(Model, IsCausal) {
  for (const auto& family : tiny_families()) {
    const auto model = tiny_model(tiny_config(family));
    tensor::PlainUnits units;
    auto batch = tiny_batch(1, 6);
    const auto before = model->forward(batch, kTinyStep, units);
    batch.tokens[0][4] = (batch.tokens[0][4] + 1).remainder(17);
    const auto after = model->forward(batch, kTinyStep, units);
    EXPECT_TRUE(at::allclose(before.narrow(1, 0, 4), after.narrow(1, 0, 4), 1e-12, 1e-12));
    EXPECT_FALSE(at::allclose(before.select(1, 4), after.select(1, 4)));
  }
}

// Rows dropped alone, together, or padded draw the same masks.
TEST(Model, DropoutDoesNotDependOnTheBatchSplitOrPadding) {
  const auto model = tiny_model(tiny_config(kTinyGpt));
  tensor::PlainUnits units;
  const auto batch = tiny_batch(3, 5);
  const auto whole = model->forward(batch, kTinyStep, units);
  for (int64_t row = 0; row < 3; ++row) {
    tensor::Batch alone;
    alone.tokens = at::constant_pad_nd(batch.tokens.narrow(0, row, 1), {0, 3}, 0);
    alone.documents = batch.documents.narrow(0, row, 1);
    const auto hidden = model->forward(alone, kTinyStep, units).narrow(1, 0, 5);
    EXPECT_TRUE(at::allclose(hidden, whole.narrow(0, row, 1), 1e-12, 1e-12)) << row;
  }
}

// Four documents of up to nine tokens: padded to rows, and behind each other.
struct PackedCase {
  std::vector<int64_t> lengths{4, 1, 9, 3};
  tensor::Batch padded = tiny_batch(4, 9);
  tensor::HostBatch host{.rows = 1};
  tensor::Batch packed;

  PackedCase() {
    for (int64_t row = 0; row < 4; ++row) {
      const auto length = lengths[static_cast<size_t>(row)];
      padded.targets[row].narrow(0, length, 9 - length).fill_(tensor::kIgnore);
      for (int64_t t = 0; t < length; ++t) {
        host.tokens.push_back(padded.tokens[row][t].item<int64_t>());
        host.targets.push_back(padded.targets[row][t].item<int64_t>());
        host.num_targets += host.targets.back() != tensor::kIgnore;
      }
      host.documents.push_back(padded.documents[row].item<int64_t>());
      host.document_ends.push_back(static_cast<int32_t>(host.tokens.size()));
    }
    host.length = static_cast<int64_t>(host.tokens.size());
    packed = to_device(host, at::kCPU);
    padded.row_lengths = at::tensor(lengths, at::kLong);
  }
};

// Positions, windows, dropout inside attention and out: all is the document's own.
TEST(Packing, EqualsThePaddedReference) {
  const PackedCase c;
  auto families = tiny_families();
  families.push_back(kTinyLlama + R"(, "attention_dropout": 0.3)");
  for (const auto& family : families) {
    const auto model = tiny_model(tiny_config(family));
    tensor::PlainUnits units;
    std::vector<at::Tensor> leaves;
    for (const auto& p : model->table().parameters) leaves.push_back(*p.slot);
    const auto hidden = model->forward(c.packed, kTinyStep, units);
    const auto expected = model->forward(c.padded, kTinyStep, units);
    int64_t begin = 0;
    for (int64_t row = 0; row < 4; ++row) {
      const auto length = c.lengths[static_cast<size_t>(row)];
      EXPECT_TRUE(at::allclose(hidden[0].narrow(0, begin, length),
                               expected[row].narrow(0, 0, length), 1e-11, 1e-12))
          << family << row;
      begin += length;
    }
    const auto loss = model->head_loss_sum(hidden, c.packed, 0.5, units);
    const auto wanted = model->head_loss_sum(expected, c.padded, 0.5, units);
    EXPECT_TRUE(at::allclose(loss, wanted, 1e-12)) << family;
    const auto gradients = torch::autograd::grad({loss}, leaves);
    const auto wanted_gradients = torch::autograd::grad({wanted}, leaves);
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_TRUE(at::allclose(gradients[i], wanted_gradients[i], 1e-9, 1e-11)) << family << i;
    }
  }
}

// NEFTune's noise: of the document's own length, after Gemma's scale, in training alone.
TEST(Packing, NoiseIsTheDocumentsOwn) {
  const PackedCase c;
  for (const auto& family : tiny_families()) {
    const auto model = tiny_model(tiny_config(family), {.embedding_noise = 5});
    const auto quiet = tiny_model(tiny_config(family));
    tensor::PlainUnits units;
    const auto hidden = model->forward(c.packed, kTinyStep, units);
    const auto expected = model->forward(c.padded, kTinyStep, units);
    EXPECT_FALSE(at::allclose(hidden, quiet->forward(c.packed, kTinyStep, units))) << family;
    int64_t begin = 0;
    for (int64_t row = 0; row < 4; ++row) {
      const auto length = c.lengths[static_cast<size_t>(row)];
      EXPECT_TRUE(at::allclose(hidden[0].narrow(0, begin, length),
                               expected[row].narrow(0, 0, length), 1e-11, 1e-12))
          << family << row;
      begin += length;
    }
    auto evaluation = kTinyStep;
    evaluation.training = false;
    EXPECT_TRUE(at::equal(model->forward(c.packed, evaluation, units),
                          quiet->forward(c.packed, evaluation, units)))
        << family;
  }
}

// These turn by a document's own length: some here are longer than the original five.
TEST(Packing, RotatesByTheDocumentsLength) {
  const PackedCase c;
  const std::string original = R"(, "max_position_embeddings": 5, "rope_scaling": )";
  for (const auto& config :
       {tiny_config(kTinyQwen3, original + R"({"rope_type": "dynamic", "factor": 3})"),
        tiny_config(kTinyPhi,
                    R"(, "partial_rotary_factor": 1, "original_max_position_embeddings": 5,
                    "rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1.5],
                                     "long_factor": [2, 9]})")}) {
    const auto model = tiny_model(config);
    tensor::PlainUnits units;
    const auto hidden = model->forward(c.packed, kTinyStep, units);
    const auto together = model->forward(c.padded, kTinyStep, units);
    int64_t begin = 0;
    for (int64_t row = 0; row < 4; ++row) {
      const auto length = c.lengths[static_cast<size_t>(row)];
      tensor::Batch alone;
      alone.tokens = c.padded.tokens.narrow(0, row, 1).narrow(1, 0, length);
      alone.documents = c.padded.documents.narrow(0, row, 1);
      const auto expected = model->forward(alone, kTinyStep, units)[0];
      EXPECT_TRUE(at::allclose(hidden[0].narrow(0, begin, length), expected, 1e-11, 1e-12)) << row;
      const bool is_long = length > 5;
      if (length > 1) {
        EXPECT_EQ(at::allclose(together[row].narrow(0, 0, length), expected, 1e-9), is_long);
      }
      begin += length;
    }
  }
}

// As a rank gets it that has no rows left.
TEST(Packing, ARunWithoutTargetsGivesZeros) {
  const tensor::HostBatch host{.rows = 1,
                               .length = 1,
                               .tokens = {3},
                               .targets = {tensor::kIgnore},
                               .documents = {0},
                               .document_ends = {1}};
  const auto batch = to_device(host, at::kCPU);
  const auto model = tiny_model(tiny_config(kTinyLlama));
  tensor::PlainUnits units;
  const auto loss = model->head_loss_sum(model->forward(batch, kTinyStep, units), batch, 1, units);
  EXPECT_EQ(loss.item<double>(), 0);
  const auto leaf = *model->table().find("model.embed_tokens.weight")->slot;
  const auto gradient = torch::autograd::grad({loss}, {leaf})[0];
  EXPECT_EQ(gradient.abs().max().item<double>(), 0);
}

TEST(Packing, RefusesDocumentsLongerThanTheirPositions) {
  PackedCase c;
  c.host.documents = {1, 2};
  c.host.document_ends = {7, 17};
  const auto model = tiny_model(tiny_config(kTinyGpt));
  tensor::PlainUnits units;
  EXPECT_THROW(model->forward(to_device(c.host, at::kCPU), kTinyStep, units), UserError);
}

TEST(Model, DropoutActsInTrainingAlone) {
  const auto model = tiny_model(tiny_config(kTinyGpt));
  tensor::PlainUnits units;
  const auto batch = tiny_batch(2, 5);
  const auto forward = [&](const tensor::StepKey& key) {
    return model->forward(batch, key, units);
  };
  EXPECT_TRUE(
      at::equal(forward({.step = 1, .training = false}), forward({.step = 2, .training = false})));
  EXPECT_FALSE(at::equal(forward({.step = 1}), forward({.step = 2})));
}

TEST(Gpt, RefusesRowsLongerThanItsPositions) {
  const auto model = tiny_model(tiny_config(kTinyGpt));
  tensor::PlainUnits units;
  EXPECT_THROW(model->forward(tiny_batch(1, 10), kTinyStep, units), UserError);
}

}  // namespace
}  // namespace skein::model
