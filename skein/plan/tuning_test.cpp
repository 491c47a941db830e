// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/tuning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/plan/cost/flops.h"
#include "skein/plan/cost/memory_estimate.h"
#include "skein/plan/cost/reach.h"
#include "skein/plan/hf_config.h"

namespace skein::plan {
namespace {

using Names = std::set<std::string>;

HfConfig llama(const std::string& more = "") {
  return parse_hf_config(R"({"model_type": "llama", "vocab_size": 19, "hidden_size": 8,
      "intermediate_size": 12, "num_hidden_layers": 4, "num_attention_heads": 2)" +
                             more + "}",
                         "llama");
}

HfConfig gpt() {
  return parse_hf_config(R"({"model_type": "gpt2", "vocab_size": 19, "n_positions": 16, "n_embd": 8,
      "n_layer": 2, "n_head": 2})",
                         "gpt2");
}

Tuning lora(const std::string& keys) {
  return {.lora =
              adapter::parse_adapter_config(R"({"peft_type": "LORA", )" + keys + "}", "a.json")};
}

Names trainable(const HfConfig& config, const Tuning& tuning) {
  Names names;
  for (const auto& parameter : tune(config.architecture, tuning).shapes.parameters) {
    if (parameter.trainable) names.insert(parameter.name);
  }
  return names;
}

std::vector<int64_t> shape(const TunedModel& tuned, const std::string& name) {
  for (const auto& parameter : tuned.shapes.parameters) {
    if (parameter.name == name) return parameter.shape;
  }
  return {};
}

// Blocks of which everything trains.
std::set<int64_t> blocks(const FreezeOptions& options) {
  std::set<int64_t> found;
  for (const auto& name : trainable(llama(), {.freeze = options})) {
    found.insert(std::stoll(name.substr(std::string("model.layers.").size())));
  }
  return found;
}

TEST(Tuning, EverythingTrainsUnlessSaidOtherwise) {
  const auto tuned = tune(llama().architecture, {});
  EXPECT_EQ(tuned.shapes.trainable_numel(), llama().shapes().numel());
  EXPECT_TRUE(tuned.adapters.empty());
}

TEST(Tuning, AdaptersStandBehindTheirModuleUnderPeftsNames) {
  const auto tuned = tune(gpt().architecture, lora(R"("r": 3, "lora_alpha": 6, "use_dora": true,
      "target_modules": ["c_attn", "wte", "lm_head"])"));
  const std::string module = "transformer.h.1.attn.c_attn";
  EXPECT_EQ(shape(tuned, module + ".lora_A.weight"), (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(shape(tuned, module + ".lora_B.weight"), (std::vector<int64_t>{24, 3}));
  EXPECT_EQ(shape(tuned, module + ".lora_magnitude_vector"), (std::vector<int64_t>{24}));
  EXPECT_EQ(shape(tuned, "transformer.wte.lora_embedding_A"), (std::vector<int64_t>{3, 19}));
  EXPECT_EQ(shape(tuned, "transformer.wte.lora_embedding_B"), (std::vector<int64_t>{8, 3}));
  EXPECT_EQ(shape(tuned, "lm_head.lora_B.weight"), (std::vector<int64_t>{19, 3}));
  EXPECT_EQ(tuned.adapters.at(module).scale, 2);
  EXPECT_TRUE(tuned.adapters.at(module).dora);
  const auto& list = tuned.shapes.parameters;
  const auto bias = std::ranges::find(list, module + ".bias", &ParameterShape::name);
  EXPECT_EQ((bias + 1)->name, module + ".lora_A.weight");
  EXPECT_TRUE((bias + 1)->adapter);
  EXPECT_EQ((bias + 1)->unit, bias->unit);
  for (const auto& parameter : list) {
    EXPECT_EQ(parameter.trainable, parameter.name.find(".lora_") != std::string::npos);
  }
}

TEST(Tuning, RanksScalesAndDropoutAreThoseOfTheModule) {
  const auto tuned = tune(llama().architecture, lora(R"("r": 4, "lora_alpha": 6, "use_rslora": true,
      "lora_dropout": 0.1, "target_modules": ["q_proj", "embed_tokens"],
      "rank_pattern": {"layers\\.1\\..*": 9}, "alpha_pattern": {"embed_tokens": 1})"));
  const auto& first = tuned.adapters.at("model.layers.0.self_attn.q_proj");
  EXPECT_EQ(first.rank, 4);
  EXPECT_EQ(first.scale, 3);
  EXPECT_EQ(first.dropout, 0.1);
  EXPECT_EQ(tuned.adapters.at("model.layers.1.self_attn.q_proj").rank, 9);
  EXPECT_EQ(tuned.adapters.at("model.layers.1.self_attn.q_proj").scale, 2);
  EXPECT_EQ(tuned.adapters.at("model.embed_tokens").scale, 0.5);
  EXPECT_EQ(tuned.adapters.at("model.embed_tokens").dropout, 0);
}

TEST(Tuning, AllLinearLeavesOutTheHeadAndEmbeddings) {
  const auto tuned = tune(llama().architecture, lora(R"("target_modules": "all-linear")"));
  EXPECT_EQ(tuned.adapters.size(), 4U * 7);
  EXPECT_FALSE(tuned.adapters.contains("lm_head"));
}

TEST(Tuning, ModulesToSaveTrainWhole) {
  const auto names = trainable(llama(), lora(R"("target_modules": ["q_proj"], "modules_to_save":
      ["lm_head", "norm", "layers.2.mlp.up_proj"])"));
  for (const char* name :
       {"lm_head.weight", "model.norm.weight", "model.layers.2.mlp.up_proj.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("model.layers.1.mlp.up_proj.weight"));
  EXPECT_FALSE(names.contains("model.embed_tokens.weight"));
}

TEST(Tuning, ATiedHeadIsTheEmbedding) {
  const Tuning head{.freeze = FreezeOptions{.trainable_layers = 1, .extra_modules = {"lm_head"}}};
  EXPECT_TRUE(trainable(llama(), head).contains("lm_head.weight"));
  const auto refused = [&](const HfConfig& model) {
    return refusal<UserError>([&] { tune(model.architecture, head); });
  };
  EXPECT_PRED2(contains, refused(llama(R"(, "tie_word_embeddings": true)")),
               "'lm_head' is the embedding in this model (tie_word_embeddings): name "
               "'embed_tokens', and both train");
  EXPECT_PRED2(contains, refused(gpt()), "name 'wte', and both train");
}

// PEFT copies the module that is named, and the other keeps the frozen weight.
TEST(Tuning, ASavedTiedEmbeddingLeavesTheHeadBehind) {
  const auto tied = llama(R"(, "tie_word_embeddings": true)");
  const auto saved = lora(R"("target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"])");
  const auto tuned = tune(tied.architecture, saved);
  EXPECT_FALSE(tuned.architecture->dimensions().tied_head);
  EXPECT_EQ(shape(tuned, "lm_head.weight"), (std::vector<int64_t>{19, 8}));
  EXPECT_TRUE(trainable(tied, saved).contains("model.embed_tokens.weight"));
  EXPECT_FALSE(trainable(tied, saved).contains("lm_head.weight"));
  EXPECT_TRUE(tune(tied.architecture, lora(R"("target_modules": ["q_proj"], "modules_to_save":
      ["embed_tokens"], "ensure_weight_tying": true)"))
                  .architecture->dimensions()
                  .tied_head);
  // Adapters need no copy.
  EXPECT_TRUE(tune(tied.architecture, lora(R"("target_modules": ["embed_tokens", "lm_head"])"))
                  .architecture->dimensions()
                  .tied_head);
}

TEST(Tuning, FreezesAsLlamaFactoryDoes) {
  EXPECT_EQ(blocks({}), (std::set<int64_t>{2, 3}));
  EXPECT_EQ(blocks({.trainable_layers = 9}), (std::set<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(blocks({.trainable_layers = -1}), (std::set<int64_t>{0}));
  EXPECT_EQ(blocks({.trainable_layers = 2, .use_llama_pro = true}), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(trainable(llama(), {.freeze = FreezeOptions{.trainable_layers = 1,
                                                        .trainable_modules = {"mlp.up_proj"},
                                                        .extra_modules = {"lm_head"}}}),
            (Names{"lm_head.weight", "model.layers.3.mlp.up_proj.weight"}));
  EXPECT_EQ(trainable(llama(), {.freeze = FreezeOptions{.trainable_layers = 1,
                                                        .trainable_modules = {"mlp"}}})
                .size(),
            3U);
  // A word of a name, wherever it is.
  const auto norms = trainable(
      llama(), {.freeze = FreezeOptions{.trainable_layers = 0, .extra_modules = {"norm"}}});
  EXPECT_EQ(norms.size(), 4U * 2 + 1);
  EXPECT_TRUE(norms.contains("model.layers.0.input_layernorm.weight"));
}

TEST(Tuning, RefusesWhatTheModelDoesNotHave) {
  const auto why = [](const Tuning& tuning, const HfConfig& config = llama()) {
    return refusal<UserError>([&] { tune(config.architecture, tuning); });
  };
  EXPECT_PRED2(contains, why(lora(R"("target_modules": ["q_proj", "v_prj"])")),
               "no module 'v_prj'; did you mean 'v_proj'");
  EXPECT_PRED2(contains, why(lora(R"("target_modules": ".*qkv")")), "matches no layer");
  EXPECT_PRED2(contains, why(lora(R"("target_modules": ["q_proj"], "modules_to_save": ["heads"])")),
               "modules_to_save: the model has no module 'heads'");
  EXPECT_PRED2(contains, why(lora(R"("target_modules": ["lm_head"], "lora_dropout": 0.1)")),
               "before the output head");
  const auto frozen = [](const FreezeOptions& options) { return Tuning{.freeze = options}; };
  EXPECT_PRED2(contains, why(frozen({.trainable_modules = {"self_atn"}})),
               "no module 'self_atn'; did you mean 'self_attn'");
  EXPECT_PRED2(contains, why(frozen({.extra_modules = {"wte"}})), "freeze_extra_modules");
  EXPECT_PRED2(contains, why(frozen({.trainable_layers = 3, .use_llama_pro = true})), "divide");
  EXPECT_PRED2(contains, why(frozen({.trainable_layers = 0})), "nothing of the model would train");
}

TEST(Tuning, FrozenWeightsHaveNeitherGradientsNorStates) {
  const auto tuned = tune(llama().architecture, lora(R"("r": 4, "target_modules": "all-linear")"));
  const MemoryQuestion question{
      .weight_bytes = 2, .gradient_bytes = 2, .state_bytes = 12, .rows = 2, .tokens = 32};
  const auto flat = flat_bytes(tuned.shapes, question);
  // Every tensor is rounded up to 128 elements.
  int64_t adapters = 0, frozen = 0;
  for (const auto& parameter : tuned.shapes.parameters) {
    (parameter.adapter ? adapters : frozen) += (parameter.memory_numel() + 127) / 128 * 128;
  }
  EXPECT_EQ(flat.weights, 2 * frozen + 4 * adapters);
  EXPECT_EQ(flat.gradients, 4 * adapters);
  EXPECT_EQ(flat.states, 8 * adapters);

  const auto dimensions = llama().dimensions();
  const auto kept = [&](const char* keys) {
    return activation_bytes(tune(llama().architecture, lora(keys)).shapes, dimensions, question)
        .kept;
  };
  const auto all = activation_bytes(llama().shapes(), dimensions, question).kept;
  // Ranks of seven adapters; of the attention's alone, without the inputs of the MLP's layers.
  const int64_t tokens = 2 * 2 * 32;
  EXPECT_EQ(kept(R"("r": 4, "target_modules": "all-linear")"), all + tokens * 4 * 7 * 4);
  EXPECT_EQ(kept(R"("r": 4, "target_modules": ["q_proj"])"), all + tokens * 4 * (4 - 8 - 12));
  const auto last = tune(llama().architecture, {.freeze = FreezeOptions{.trainable_layers = 1}});
  EXPECT_EQ(activation_bytes(last.shapes, dimensions, question).kept,
            all - (all - tokens * 4 * 8) / 4 * 3);
}

TEST(Tuning, FourBitsAreOfTheFrozenLayersOfBlocks) {
  auto tuning = lora(R"("r": 4, "target_modules": ["q_proj"], "modules_to_save": ["up_proj"])");
  tuning.four_bits.emplace();
  const auto shapes = tune(llama().architecture, tuning).shapes;
  Names packed;
  for (const auto& parameter : shapes.parameters) {
    if (parameter.packed_bytes == 0) continue;
    packed.insert(parameter.name);
    EXPECT_FALSE(parameter.trainable) << parameter.name;
  }
  EXPECT_EQ(packed.size(), 4U * 6);
  EXPECT_TRUE(packed.contains("model.layers.0.self_attn.q_proj.weight"));
  for (const auto* name :
       {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight",
        "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.lora_A.weight"}) {
    EXPECT_FALSE(packed.contains(name)) << name;
  }
  // Parameters are counted as before; a product's weights lie there while it is made.
  tuning.four_bits.reset();
  const auto whole = tune(llama().architecture, tuning).shapes;
  EXPECT_EQ(shapes.numel(), whole.numel());
  EXPECT_EQ(shapes.trainable_numel(), whole.trainable_numel());
  const MemoryQuestion question{.weight_bytes = 2, .rows = 2, .tokens = 32};
  const auto unit = [&](const Shapes& of) {
    return activation_bytes(of, llama().dimensions(), question).unit;
  };
  EXPECT_EQ(unit(shapes), unit(whole) + 2 * 8 * 12);
}

// 8B: its layers in 4 bits, embedding and head in 16.
TEST(Tuning, FourBitsAreHalfAByteAndALittle) {
  const auto config = parse_hf_config(
      R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
          "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 8, "tie_word_embeddings": false})",
      "8b");
  auto tuning = lora(R"("r": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"])");
  for (const auto& [doubly, least, most] : {std::tuple{true, 0.51, 0.52}, {false, 0.56, 0.57}}) {
    tuning.four_bits = FourBits{.doubly = doubly};
    const auto shapes = tune(config.architecture, tuning).shapes;
    double bytes = 0, elements = 0;
    for (const auto& parameter : shapes.parameters) {
      if (parameter.packed_bytes == 0) continue;
      bytes += static_cast<double>(parameter.packed_bytes);
      elements += static_cast<double>(parameter.numel());
    }
    EXPECT_GT(elements, 6.9e9);
    EXPECT_GT(bytes / elements, least);
    EXPECT_LT(bytes / elements, most);
    const auto flat = flat_bytes(shapes, {.weight_bytes = 2, .gradient_bytes = 2});
    EXPECT_LT(static_cast<double>(flat.weights + flat.states), (doubly ? 5.6 : 5.9) * (1 << 30));
  }
}

// Whether the head is the embedding or not: what trains stands behind the blocks, or before them.
TEST(Tuning, BackwardStopsWhereNothingTrainsBelow) {
  const auto reached = [](const HfConfig& config, int64_t layers, const std::string& module) {
    const Tuning tuning{.freeze =
                            FreezeOptions{.trainable_layers = layers, .extra_modules = {module}}};
    const auto shapes = tune(config.architecture, tuning).shapes;
    const auto found = reached_units(shapes);
    int64_t blocks = 0;
    for (size_t unit = 0; unit < found.size(); ++unit) {
      blocks += !shapes.units[unit].root && found[unit] ? 1 : 0;
    }
    return blocks;
  };
  EXPECT_EQ(reached(llama(), 0, "lm_head"), 0);
  EXPECT_EQ(reached(llama(), 1, "lm_head"), 1);
  EXPECT_EQ(reached(llama(), 0, "embed_tokens"), 4);
  const auto tied = gpt();
  EXPECT_EQ(reached(tied, 0, "ln_f"), 0);
  EXPECT_EQ(reached(tied, 1, "ln_f"), 1);
  EXPECT_EQ(reached(tied, 0, "wte"), 2);
}

TEST(Tuning, FrozenWeightsCostTwoThirdsOfTheProducts) {
  const auto dimensions = llama().dimensions();
  const double all = training_flops_per_token(dimensions, 16);
  const auto flops = [&](const Tuning& tuning) {
    return TrainingFlops(dimensions, tune(llama().architecture, tuning).shapes).per_token(16);
  };
  EXPECT_EQ(flops({}), all);
  const auto matrices = static_cast<double>(matmul_parameters(dimensions));
  const double adapters = 4 * 2 * 2 * 8;  // rank 2 of q_proj, (8, 8), in four layers
  EXPECT_EQ(flops(lora(R"("r": 2, "target_modules": ["q_proj"])")),
            all - 2 * matrices + 6 * adapters);
  // The head and three blocks are frozen; through the blocks no gradient goes.
  const double head = 19 * 8, block = (matrices - head) / 4, attention = all - 6 * matrices;
  EXPECT_NEAR(flops({.freeze = FreezeOptions{.trainable_layers = 1}}),
              all - 2 * head - 4 * 3 * block - attention / 2, 1e-6);
  // Attention grows with the square of a document.
  const TrainingFlops lengths(dimensions, llama().shapes());
  EXPECT_EQ(lengths.of_document(16), 16 * all);
  EXPECT_NEAR(2 * lengths.of_document(16) - 4 * lengths.of_document(8), 16 * attention, 1e-6);
}

TEST(Tuning, FlopsAddUpByComponent) {
  const auto dimensions = llama().dimensions();
  const std::vector<int64_t> lengths = {16, 5, 11};
  const auto part_of = [&](const std::vector<FlopsPart>& parts, std::string_view component) {
    for (const auto& part : parts) {
      if (part.component == component) return part.flops;
    }
    return 0.0;
  };
  for (const auto& tuning :
       {Tuning{}, lora(R"("r": 2, "target_modules": ["q_proj"])"),
        Tuning{.freeze = FreezeOptions{.trainable_layers = 1, .trainable_modules = {"mlp"}}}}) {
    const TrainingFlops flops(dimensions, tune(llama().architecture, tuning).shapes);
    double expected = 0, found = 0;
    for (const auto length : lengths) expected += flops.of_document(length);
    const auto parts = flops.parts(lengths);
    for (const auto& part : parts) {
      EXPECT_GT(part.flops, 0) << part.component;
      found += part.flops;
    }
    EXPECT_NEAR(found / expected, 1, 1e-12);
    EXPECT_EQ(part_of(parts, "adapters") > 0, tuning.lora.has_value());
  }
  // A head of 19 rows and 8 channels; 32 tokens.
  const auto parts = TrainingFlops(dimensions, llama().shapes()).parts(lengths);
  EXPECT_EQ(part_of(parts, "head"), 6.0 * 19 * 8 * 32);
  const auto frozen = tune(llama().architecture, lora(R"("r": 2, "target_modules": ["q_proj"])"));
  EXPECT_EQ(part_of(TrainingFlops(dimensions, frozen.shapes).parts(lengths), "head"),
            4.0 * 19 * 8 * 32);
}

}  // namespace
}  // namespace skein::plan
