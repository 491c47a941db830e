// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <set>

#include "skein/core/error.h"
#include "skein/model/tiny_models.h"
#include "skein/tensor/test_allocations.h"

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
      build(tiny_config(kTinyLlama),
            {.dtype = at::kBFloat16,
             .tuning = tiny_lora(R"("target_modules": ["v_proj"], "use_dora": true)")});
  for (const auto& p : model->table().parameters) {
    const bool adapter = p.name.find(".lora_") != std::string::npos;
    EXPECT_EQ(p.trainable, adapter) << p.name;
    EXPECT_EQ(p.dtype, adapter ? at::kFloat : at::kBFloat16) << p.name;
  }
  const auto table = by_name(*model);
  EXPECT_EQ(table.at("model.layers.1.self_attn.v_proj.lora_A.weight")->shape,
            (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(table.at("model.layers.1.self_attn.v_proj.lora_B.weight")->shape,
            (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(table.at("model.layers.1.self_attn.v_proj.lora_magnitude_vector")->shape,
            (std::vector<int64_t>{4}));
}

TEST(Table, FreezingLeavesTheRestTraining) {
  const auto model = build(tiny_config(kTinyGpt),
                           {.tuning = {.freeze = plan::FreezeOptions{
                                           .trainable_layers = 1, .trainable_modules = {"mlp"}}}});
  for (const auto& p : model->table().parameters) {
    EXPECT_EQ(p.trainable, p.name.starts_with("transformer.h.1.mlp.")) << p.name;
  }
}

TEST(Build, RefusesAdaptersThatDoNotExist) {
  const BuildOptions options{.tuning = tiny_lora(R"("target_modules": ["q_proj"])")};
  EXPECT_THROW(build(tiny_config(kTinyGpt), options), UserError);
}

TEST(Build, FreshAdaptersChangeNothing) {
  for (const auto& [config, keys] :
       {std::pair{tiny_config(kTinyLlama), R"("target_modules": "all-linear")"},
        {tiny_config(kTinyLlama), R"("target_modules": ["q_proj", "embed_tokens", "lm_head"])"},
        {tiny_config(kTinyLlama), R"("target_modules": ["up_proj"], "use_dora": true)"},
        {tiny_config(kTinyGpt), R"("target_modules": ["c_attn", "wte", "lm_head"],
                                   "use_dora": true)"}}) {
    const auto plain = build(config);
    const auto adapted = build(config, {.tuning = tiny_lora(keys)});
    materialise(plain->table(), at::kCPU, 3);
    materialise(adapted->table(), at::kCPU, 3);
    tensor::PlainUnits units;
    std::vector<tensor::TensorSlice> slices;
    for (const auto& p : adapted->table().parameters) {
      slices.push_back({p.name, p.shape, p.dtype, 0, p.numel(), p.slot->detach().view(-1)});
    }
    adapted->fill_magnitudes(slices, units);
    const auto batch = tiny_batch(2, 4);
    const auto logits = [&](const Model& model) {
      return model.head_logits(model.forward(batch, {.training = false}, units), units);
    };
    EXPECT_TRUE(at::allclose(logits(*plain), logits(*adapted), 1e-5, 1e-6)) << keys;
  }
}

// The adapter on its own, of which the first values are PEFT's: B · A is zero.
TEST(Build, AdaptersBeginAsInPeft) {
  const auto model = build(tiny_config(kTinyLlama, R"(, "hidden_size": 64)"),
                           {.tuning = tiny_lora(R"("target_modules": ["q_proj", "embed_tokens"],
                              "rank_pattern": {".*": 8})")});
  materialise(model->table(), at::kCPU, 3);
  const auto table = by_name(*model);
  const auto value = [&](const char* name) { return *table.at(name)->slot; };
  const auto a = value("model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_LT(a.abs().max().item<double>(), 0.125);
  EXPECT_GT(a.abs().max().item<double>(), 0.12);
  EXPECT_NEAR(a.std().item<double>(), 0.125 / std::sqrt(3), 0.01);
  EXPECT_EQ(value("model.layers.0.self_attn.q_proj.lora_B.weight").abs().max().item<double>(), 0);
  EXPECT_EQ(value("model.embed_tokens.lora_embedding_A").abs().max().item<double>(), 0);
  EXPECT_NEAR(value("model.embed_tokens.lora_embedding_B").std().item<double>(), 1, 0.1);
}

// Rows one by one, and in a run: what is dropped before an adapter follows the document.
TEST(LoraDropout, FollowsTheDocumentNotTheBatch) {
  const auto model =
      tiny_model(tiny_config(kTinyLlama), {.tuning = tiny_lora(R"("target_modules": "all-linear",
                                                        "lora_dropout": 0.5)")});
  tensor::PlainUnits units;
  const auto batch = tiny_batch(3, 5);
  const auto whole = model->forward(batch, kTinyStep, units);
  for (int64_t row = 0; row < 3; ++row) {
    tensor::Batch one;
    one.tokens = batch.tokens.narrow(0, row, 1);
    one.documents = batch.documents.narrow(0, row, 1);
    EXPECT_TRUE(
        at::allclose(model->forward(one, kTinyStep, units), whole.narrow(0, row, 1), 1e-12));
  }
  tensor::HostBatch host{.rows = 1, .length = 15, .documents = {40, 41, 42}};
  const auto flat = batch.tokens.flatten();
  host.tokens.assign(flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + 15);
  host.targets = host.tokens;
  host.document_ends = {5, 10, 15};
  const auto run = model->forward(tensor::to_device(host, at::kCPU), kTinyStep, units);
  EXPECT_TRUE(at::allclose(run.view({3, 5, -1}), whole, 1e-12));
  EXPECT_FALSE(at::allclose(model->forward(batch, {.seed = 1, .step = 3}, units), whole));
  EXPECT_FALSE(at::allclose(model->forward(batch, {.training = false}, units), whole));
}

// The rows of a batch behind each other.
tensor::Batch as_run(const tensor::Batch& batch) {
  const auto values = [](const at::Tensor& tensor) {
    const auto flat = tensor.flatten();
    return std::vector<int64_t>(flat.const_data_ptr<int64_t>(),
                                flat.const_data_ptr<int64_t>() + flat.numel());
  };
  tensor::HostBatch host{.rows = 1,
                         .length = batch.tokens.numel(),
                         .tokens = values(batch.tokens),
                         .targets = values(batch.targets),
                         .documents = values(batch.documents),
                         .num_targets = batch.num_targets};
  for (int64_t row = 1; row <= batch.tokens.size(0); ++row) {
    host.document_ends.push_back(static_cast<int32_t>(row * batch.tokens.size(1)));
  }
  return tensor::to_device(host, at::kCPU);
}

// As if they had never been there, in every place that has one; and the next pass has them again.
TEST(Adapters, OffMeansTheBaseAlone) {
  for (const auto& family : {kTinyLlama, kTinyGpt}) {
    for (const char* keys : {"", R"(, "use_dora": true)"}) {
      const auto config = tiny_config(family);
      const auto embeddings = family == kTinyGpt ? R"("wte", "wpe", "c_attn", "c_proj", "c_fc")"
                                                 : R"("embed_tokens", "q_proj", "down_proj")";
      const auto adapted =
          tiny_model(config, {.tuning = tiny_lora(fmt::format(
                                  R"("target_modules": [{}, "lm_head"]{})", embeddings, keys))});
      const auto base = tiny_model(config);
      const auto theirs = by_name(*adapted);
      for (const auto& parameter : base->table().parameters) {
        theirs.at(parameter.name)->slot->detach().copy_(parameter.slot->detach());
      }
      tensor::PlainUnits units;
      for (const auto& batch : {tiny_batch(2, 5), as_run(tiny_batch(2, 5))}) {
        const auto log_probs = [&](const Model& model, bool adapters) {
          auto key = kTinyStep;
          key.adapters = adapters;
          return model
              .head_log_probs(model.forward(batch, key, units), batch, units,
                              {.adapters = adapters})
              .log_probs;
        };
        EXPECT_TRUE(at::equal(log_probs(*adapted, false), log_probs(*base, true)));
        EXPECT_FALSE(at::allclose(log_probs(*adapted, true), log_probs(*base, true)));
      }
    }
  }
}

// Two modules of one block, and one module of two blocks, draw different masks; of the right rate.
TEST(LoraDropout, HasAStreamForEveryModule) {
  const Draws draws{kTinyStep, at::arange(2), {}};
  const auto mask = [&](int64_t layer, uint64_t site) {
    const Lora lora{.dropout = 0.25, .layer = layer, .site = site};
    return ops::dropout(at::ones({2, 50, 100}), draws.at(lora)).ne(0);
  };
  EXPECT_TRUE(at::equal(mask(0, 7), mask(0, 7)));
  EXPECT_FALSE(at::equal(mask(0, 7), mask(0, 8)));
  EXPECT_FALSE(at::equal(mask(0, 7), mask(1, 7)));
  EXPECT_NEAR(mask(0, 7).to(at::kFloat).mean().item<double>(), 0.75, 0.02);
}

TEST(Model, RunsOnTheMetaDevice) {
  for (const auto& family : tiny_families()) {
    const auto model =
        build(tiny_config(family),
              {.dtype = at::kBFloat16, .tuning = tiny_lora(R"("target_modules": "all-linear")")});
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
    EXPECT_TRUE(at::allclose(model->head_log_probs(hidden, batch.targets, units).log_probs,
                             expected, 1e-12));
    const auto weights = at::arange(10, at::kDouble).view({2, 5});
    EXPECT_TRUE(at::allclose(model->head_loss_sum(hidden, batch.targets, weights, units),
                             -(expected * weights).sum(), 1e-12));
  }
}

// Two layers of windows of three: what a token sees ends four positions before it.
// A head is large: beside a frozen one an adapter costs its own size.
TEST(Model, AnAdapterOfTheHeadMakesNothingOfTheHeadsSize) {
  const auto config = tiny_config(kTinyLlama, R"(, "vocab_size": 4096, "hidden_size": 64)");
  const int64_t head_bytes = 4096 * 64 * 4;
  const auto batch = tiny_batch(2, 5);
  for (const char* keys :
       {R"("target_modules": ["lm_head"])", R"("target_modules": ["lm_head"], "use_dora": true)"}) {
    const auto model = build(config, {.tuning = tiny_lora(keys)});
    materialise(model->table(), at::kCPU, 1);
    std::vector<at::Tensor> leaves;
    for (const auto& parameter : model->table().parameters) {
      if (parameter.trainable) leaves.push_back(*parameter.slot);
    }
    tensor::PlainUnits units;
    const auto hidden = model->forward(batch, kTinyStep, units);
    const tensor::AllocationMeter meter;
    torch::autograd::grad({model->head_loss_sum(hidden, batch.targets, {}, units)}, leaves);
    const auto log_probs = model->head_log_probs(hidden, batch.targets, units).log_probs;
    torch::autograd::grad({log_probs.sum()}, leaves);
    model->head_logits(hidden, units);
    EXPECT_LT(meter.largest_bytes(), head_bytes / 2) << keys;
  }
}

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
        tiny_config(kTinyPhi, kTinyLongRope)}) {
    const auto model = tiny_model(config);
    tensor::PlainUnits units;
    const auto hidden = model->forward(c.packed, kTinyStep, units);
    const auto padded = model->forward(c.padded, kTinyStep, units);
    auto blind = c.padded;
    blind.row_lengths = at::Tensor();
    const auto alike = model->forward(blind, kTinyStep, units);
    int64_t begin = 0;
    for (int64_t row = 0; row < 4; ++row) {
      const auto length = c.lengths[static_cast<size_t>(row)];
      tensor::Batch alone;
      alone.tokens = c.padded.tokens.narrow(0, row, 1).narrow(1, 0, length);
      alone.documents = c.padded.documents.narrow(0, row, 1);
      const auto expected = model->forward(alone, kTinyStep, units)[0];
      EXPECT_TRUE(at::allclose(hidden[0].narrow(0, begin, length), expected, 1e-11, 1e-12)) << row;
      const auto row_of = [&](const at::Tensor& rows) { return rows[row].narrow(0, 0, length); };
      EXPECT_TRUE(at::allclose(row_of(padded), expected, 1e-11, 1e-12)) << row;
      // It matters: all rows as long as the longest would differ.
      const bool is_long = length > 5;
      if (length > 1) {
        EXPECT_EQ(at::allclose(row_of(alike), expected, 1e-9), is_long);
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
