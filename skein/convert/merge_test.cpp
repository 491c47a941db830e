// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/merge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "skein/convert/testing.h"
#include "skein/core/error.h"
#include "skein/text/chat_template.h"
#include "skein/text/test_tokenizer.h"

namespace skein::convert {
namespace {

// A model of one linear layer (2, 3), an embedding (4, 3) and a head; an adapter of rank 1.
class Merge : public TemporaryFolder {
 protected:
  Merge() {
    base_ = {{"model.embed_tokens.weight", {{4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}},
             {"model.q_proj.weight", {{2, 3}, {1, 2, 3, 4, 5, 6}}},
             {"model.norm.weight", {{3}, {1, 1, 1}}},
             {"lm_head.weight", {{4, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}};
    adapter_ = {{"base_model.model.model.q_proj.lora_A.weight", {{1, 3}, {1, 10, 100}}},
                {"base_model.model.model.q_proj.lora_B.weight", {{2, 1}, {1, 2}}}};
    config_ = {
        {"model_type", "llama"}, {"z", 1}, {"a", 2}, {"vocab_size", 4}, {"dtype", "float32"}};
    adapter_config_ = {{"peft_type", "LORA"},
                       {"r", 1},
                       {"lora_alpha", 0.5},
                       {"target_modules", {"q_proj"}},
                       {"base_model_name_or_path", (folder_ / "base").string()}};
  }

  TestTensors merge() {
    save();
    summary_ = merge_adapter(options_);
    return read_tensor_files(options_.out);
  }

  std::string refused() {
    save();
    return refusal<UserError>([&] { merge_adapter(options_); });
  }

  void save() {
    write_tensor_file(folder_ / "base", "model", base_);
    write_tensor_file(folder_ / "adapter", "adapter_model", adapter_);
    write("base/config.json", config_.dump());
    write("adapter/adapter_config.json", adapter_config_.dump());
  }

  nlohmann::ordered_json out_config() const {
    return nlohmann::ordered_json::parse(read_file(folder_ / "out/config.json"));
  }

  void tie() {
    base_.erase("lm_head.weight");
    config_["tie_word_embeddings"] = true;
  }

  TestTensors base_, adapter_;
  nlohmann::ordered_json config_, adapter_config_;
  MergeOptions options_{.model = {.weights = folder_ / "base", .adapter = folder_ / "adapter"},
                        .out = folder_ / "out"};
  MergeSummary summary_;
};

using Values = std::vector<float>;

TEST_F(Merge, AddsTheScaledProduct) {
  auto expected = base_;
  expected["model.q_proj.weight"].values = {1.5, 7, 53, 5, 15, 106};
  EXPECT_EQ(merge(), expected);
  EXPECT_EQ(summary_.num_adapted, 1U);
  EXPECT_EQ(out_config(), config_);
  EXPECT_EQ(out_config().dump(), config_.dump());  // in this order
}

TEST_F(Merge, RoundsOnceToTheBasesType) {
  base_["model.q_proj.weight"] = {{2, 3}, {256, 256, 256, 256, 256, 256}, DType::kBF16};
  // 256 + 1 lies halfway; 1 is a sum of thirds that would be lost one by one.
  adapter_["base_model.model.model.q_proj.lora_A.weight"].values = {2, 2.0078125F, 6};
  adapter_["base_model.model.model.q_proj.lora_B.weight"].values = {1, 1};
  EXPECT_EQ(merge()["model.q_proj.weight"].values, (Values{256, 258, 260, 256, 258, 260}));
}

TEST_F(Merge, Conv1dIsStoredTheOtherWayRound) {
  config_["model_type"] = "gpt2";
  base_["model.q_proj.weight"] = {{3, 2}, {1, 2, 3, 4, 5, 6}};
  EXPECT_EQ(merge()["model.q_proj.weight"].values, (Values{1.5, 3, 8, 14, 55, 106}));
}

TEST_F(Merge, RankPatternsAndRankStabilisedScales) {
  adapter_["base_model.model.model.q_proj.lora_A.weight"] = {{4, 3},
                                                             {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}};
  adapter_["base_model.model.model.q_proj.lora_B.weight"] = {{2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}};
  adapter_config_["rank_pattern"] = {{"q_proj", 4}};
  adapter_config_["alpha_pattern"] = {{"model.q_proj", 6}};
  adapter_config_["use_rslora"] = true;  // 6 / sqrt(4)
  EXPECT_EQ(merge()["model.q_proj.weight"].values, (Values{4, 8, 12, 19, 23, 27}));
}

TEST_F(Merge, DoraGivesOutputsTheirLengths) {
  adapter_["base_model.model.model.q_proj.lora_A.weight"].values = {0, 0, 0};
  adapter_["base_model.model.model.q_proj.lora_magnitude_vector"] = {{2}, {1, 2}};
  adapter_config_["use_dora"] = true;
  base_["model.q_proj.weight"].values = {3, 0, 4, 0, 5, 0};
  const auto rows = merge()["model.q_proj.weight"].values;
  const Values expected = {0.6F, 0, 0.8F, 0, 2, 0};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(rows[i], expected[i], 1e-7);
  fs::remove_all(options_.out);
  config_["model_type"] = "gpt2";
  base_["model.q_proj.weight"] = {{3, 2}, {3, 0, 0, 5, 4, 0}};
  const auto columns = merge()["model.q_proj.weight"].values;
  const Values turned = {0.6F, 0, 0, 2, 0.8F, 0};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(columns[i], turned[i], 1e-7);
}

TEST_F(Merge, AScoreTakesTheHeadsPlace) {
  adapter_config_["task_type"] = "SEQ_CLS";
  adapter_config_["modules_to_save"] = {"classifier", "score"};  // as PEFT says of every model
  adapter_["base_model.model.score.weight"] = {{1, 3}, {7, 8, 9}};
  config_["architectures"] = {"LlamaForCausalLM"};
  for (const bool tied : {false, true}) {
    if (tied) tie();
    fs::remove_all(options_.out);
    const auto merged = merge();
    EXPECT_EQ(merged.at("score.weight").values, (Values{7, 8, 9}));
    EXPECT_FALSE(merged.contains("lm_head.weight"));
    EXPECT_EQ(merged.at("model.q_proj.weight").values, (Values{1.5, 7, 53, 5, 15, 106}));
    EXPECT_EQ(out_config()["architectures"][0], "LlamaForSequenceClassification");
  }
  config_["architectures"] = {"LlamaForSequenceClassification"};
  fs::remove_all(options_.out);
  merge();
  EXPECT_EQ(out_config()["architectures"][0], "LlamaForSequenceClassification")
      << "a base that scored";
  adapter_.erase("base_model.model.score.weight");
  EXPECT_PRED2(contains, refused(), "missing in the adapter (1): score");
}

TEST_F(Merge, EmbeddingsAndWholeModules) {
  adapter_ = {
      {"base_model.model.model.embed_tokens.lora_embedding_A", {{1, 4}, {1, 0, 0, 2}}},
      {"base_model.model.model.embed_tokens.lora_embedding_B", {{3, 1}, {2, 4, 6}}},
      {"base_model.model.model.embed_tokens.base_layer.weight", base_["model.embed_tokens.weight"]},
      {"base_model.model.model.norm.weight", {{3}, {7, 8, 9}}}};
  adapter_config_["target_modules"] = {"embed_tokens"};
  adapter_config_["modules_to_save"] = {"norm"};
  auto expected = base_;
  expected["model.embed_tokens.weight"].values = {2, 4, 6, 4, 5, 6, 7, 8, 9, 12, 15, 18};
  expected["model.norm.weight"].values = {7, 8, 9};
  EXPECT_EQ(merge(), expected);
  EXPECT_EQ(summary_.num_replaced, 1U);
}

TEST_F(Merge, ATiedHeadStaysTiedWhereNothingPartsIt) {
  tie();
  EXPECT_FALSE(merge().contains("lm_head.weight"));
  EXPECT_EQ(out_config()["tie_word_embeddings"], true);
  fs::remove_all(options_.out);
  const TestTensor rows = {{4, 3}, Values(12, 5)};
  adapter_["base_model.model.lm_head.weight"] = rows;
  adapter_["base_model.model.model.embed_tokens.weight"] = rows;
  EXPECT_EQ(merge().contains("lm_head.weight"), false);
  EXPECT_FALSE(summary_.untied_head);
}

TEST_F(Merge, ATiedHeadGetsItsOwnTensorWhereTheyDiffer) {
  tie();
  adapter_["base_model.model.model.embed_tokens.weight"] = {{4, 3}, Values(12, 5)};
  const auto only_embedding = merge();
  EXPECT_EQ(only_embedding.at("lm_head.weight").values, base_["model.embed_tokens.weight"].values);
  EXPECT_EQ(only_embedding.at("model.embed_tokens.weight").values, Values(12, 5));
  EXPECT_EQ(out_config()["tie_word_embeddings"], false);
  fs::remove_all(options_.out);

  adapter_ = {{"base_model.model.lm_head.lora_A.weight", {{1, 3}, {2, 0, 0}}},
              {"base_model.model.lm_head.lora_B.weight", {{4, 1}, {1, 1, 1, 1}}}};
  adapter_config_["target_modules"] = {"lm_head"};
  const auto head = merge();
  EXPECT_EQ(head.at("lm_head.weight").values, (Values{2, 2, 3, 5, 5, 6, 8, 8, 9, 11, 11, 12}));
  EXPECT_EQ(head.at("model.embed_tokens.weight"), base_["model.embed_tokens.weight"]);
  EXPECT_TRUE(summary_.untied_head);
}

TEST_F(Merge, ALargerVocabularyIsWrittenDown) {
  adapter_["base_model.model.lm_head.weight"] = {{6, 3}, Values(18, 1)};
  adapter_["base_model.model.model.embed_tokens.weight"] = {{6, 3}, Values(18, 2)};
  EXPECT_EQ(merge().at("lm_head.weight").shape[0], 6U);
  EXPECT_EQ(out_config()["vocab_size"], 6);
  fs::remove_all(options_.out);
  adapter_.erase("base_model.model.lm_head.weight");
  EXPECT_PRED2(contains, refused(), "model.embed_tokens.weight has 6 rows, lm_head.weight has 4");
}

TEST_F(Merge, NamesOfTheBaseMayLackTheFirstWord) {
  config_["model_type"] = "gpt2";
  base_ = {{"h.0.attn.c_attn.weight", {{3, 2}, {1, 2, 3, 4, 5, 6}}},
           {"wte.weight", {{4, 3}, Values(12, 1)}}};
  adapter_ = {
      {"base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", {{1, 3}, {1, 10, 100}}},
      {"base_model.model.transformer.h.0.attn.c_attn.lora_B.weight", {{2, 1}, {1, 2}}}};
  adapter_config_["target_modules"] = {"c_attn"};
  EXPECT_EQ(merge().at("h.0.attn.c_attn.weight").values, (Values{1.5, 3, 8, 14, 55, 106}));
}

TEST_F(Merge, TensorsThatDoNotFitAreNamed) {
  adapter_["base_model.model.model.w_proj.lora_A.weight"] = {{1, 3}, {0, 0, 0}};
  adapter_["base_model.model.model.w_proj.lora_B.weight"] = {{2, 1}, {0, 0}};
  adapter_["stranger"] = {{1}, {0}};
  adapter_["base_model.model.model.norm.lora_A.weight"] = {{1, 3}, {0, 0, 0}};
  const auto why = refused();
  EXPECT_PRED2(contains, why,
               "not in the base (2): base_model.model.model.w_proj.lora_A.weight, stranger");
  EXPECT_PRED2(contains, why, "without their partner");
  EXPECT_PRED2(contains, why, "(1): model.norm");
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(Merge, ShapesAndTargetsAreChecked) {
  adapter_["base_model.model.model.q_proj.lora_A.weight"] = {{1, 2}, {0, 0}};
  EXPECT_PRED2(contains, refused(), "lora_A.weight is [1, 2], expected [1, 3]");
  adapter_["base_model.model.model.q_proj.lora_A.weight"] = {{1, 3}, {0, 0, 0}};
  adapter_config_["r"] = 2;
  EXPECT_PRED2(contains, refused(), "lora_A.weight is [1, 3], expected [2, 3]");
  adapter_config_["r"] = 1;
  adapter_config_["target_modules"] = {"q_prj"};
  EXPECT_PRED2(contains, refused(), "did you mean 'q_proj'");
  adapter_config_["target_modules"] = {"q_proj"};
  adapter_config_["use_dora"] = true;
  EXPECT_PRED2(contains, refused(), "without their partner");
}

TEST_F(Merge, AnAdapterMustBeWhole) {
  for (const char* layer : {"0", "1", "2"}) {
    base_[fmt::format("model.layers.{}.q_proj.weight", layer)] = {{2, 3}, {1, 2, 3, 4, 5, 6}};
  }
  config_["num_hidden_layers"] = 2;
  const auto why = refused();
  EXPECT_PRED2(contains, why, "missing in the adapter (2): model.layers.0.q_proj, model.layers.1");
  for (const char* layer : {"0", "1"}) {
    const auto name = fmt::format("base_model.model.model.layers.{}.q_proj", layer);
    adapter_[name + ".lora_A.weight"] = {{1, 3}, {0, 0, 0}};
    adapter_[name + ".lora_B.weight"] = {{2, 1}, {0, 0}};
  }
  EXPECT_EQ(refused(), "") << "nobody builds the third layer";
  fs::remove_all(options_.out);
  adapter_config_["target_modules"] = "all-linear";
  EXPECT_EQ(refused(), "");
  fs::remove_all(options_.out);
  adapter_config_["layers_to_transform"] = {0};
  adapter_config_["target_modules"] = {"q_proj"};
  EXPECT_PRED2(contains, refused(), "not among target_modules (2)");
  write("adapter/adapter_model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  EXPECT_PRED2(contains, refusal<UserError>([&] { merge_adapter(options_); }),
               "missing in the adapter (1): model.layers.0.q_proj");
}

TEST_F(Merge, ModulesToSaveMustBeThere) {
  adapter_config_["modules_to_save"] = {"norm"};
  EXPECT_PRED2(contains, refused(), "missing in the adapter (1): model.norm");
  adapter_["base_model.model.model.norm.weight"] = {{3}, {1, NAN, 1}};
  EXPECT_PRED2(contains, refused(), "'model.norm.weight' would hold values that are not finite");
  adapter_["base_model.model.model.norm.weight"] = {{3}, {1, 2, 1}};
  adapter_config_["modules_to_save"] = {"norm", "score"};
  EXPECT_PRED2(contains, refused(), "not in the base (1): 'score' of modules_to_save");
}

TEST_F(Merge, AModuleHasOneName) {
  adapter_["base_model.model.q_proj.lora_A.weight"] = {{1, 3}, {0, 0, 0}};
  adapter_["base_model.model.q_proj.lora_B.weight"] = {{2, 1}, {0, 0}};
  EXPECT_PRED2(contains, refused(), "under two names (1): base_model.model.q_proj.lora_A.weight");
}

TEST_F(Merge, AVocabularyDoesNotShrink) {
  adapter_["base_model.model.lm_head.weight"] = {{2, 3}, Values(6, 1)};
  adapter_["base_model.model.model.embed_tokens.weight"] = {{2, 3}, Values(6, 2)};
  EXPECT_PRED2(contains, refused(), "lm_head.weight is [2, 3], in the base [4, 3]");
}

TEST_F(Merge, ValuesThatAreNotFiniteAreRefused) {
  adapter_["base_model.model.model.q_proj.lora_A.weight"].values[1] = NAN;
  EXPECT_PRED2(contains, refused(), "'model.q_proj.weight' would hold values that are not finite");
  base_["model.q_proj.weight"].dtype = DType::kF16;
  adapter_["base_model.model.model.q_proj.lora_A.weight"].values[1] = 1e6;
  EXPECT_PRED2(contains, refused(), "too large for float16");
  EXPECT_FALSE(fs::exists(options_.out));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2) << "nothing is left behind";
}

TEST_F(Merge, AQuantisedBaseIsRefused) {
  config_["quantization_config"] = {{"bits", 4}};
  EXPECT_PRED2(contains, refused(), "quantised");
}

TEST_F(Merge, TheAdaptersTokenizerIsNewer) {
  write("base/tokenizer.json", "old");
  write("base/vocab.json", "old");
  write("base/generation_config.json", "base");
  write("base/chat_template.jinja", "base");
  write("base/README.md", "no");
  merge();
  EXPECT_EQ(read_file(options_.out / "tokenizer.json"), "old");
  EXPECT_EQ(read_file(options_.out / "chat_template.jinja"), "base");
  EXPECT_FALSE(fs::exists(options_.out / "README.md"));
  fs::remove_all(options_.out);
  write("adapter/tokenizer.json", "new");
  merge();
  EXPECT_EQ(read_file(options_.out / "tokenizer.json"), "new");
  EXPECT_EQ(read_file(options_.out / "generation_config.json"), "base");
  EXPECT_FALSE(fs::exists(options_.out / "vocab.json")) << "of the other tokenizer";
}

// As in a model whose weights were all trained.
TEST_F(Merge, IdsFollowTheAdaptersTokenizer) {
  config_["eos_token_id"] = 7;
  config_["bos_token_id"] = 6;
  write("base/tokenizer.json", text::byte_tokenizer_json({"<|im_end|>", "</s>"}));
  write("base/tokenizer_config.json", R"({"eos_token": "</s>"})");
  merge();
  EXPECT_EQ(out_config()["eos_token_id"], 7) << "the base says nothing new";
  EXPECT_FALSE(fs::exists(options_.out / "generation_config.json"));
  fs::remove_all(options_.out);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    write(std::string("adapter/") + name, read_file(folder_ / "base" / name));
  }
  write("adapter/chat_template.jinja", std::string(text::built_in_template("chatml")));
  write("base/generation_config.json", R"({"temperature": 0.5, "eos_token_id": [7, 8]})");
  merge();
  const auto ids = nlohmann::ordered_json({1001, 1000});
  EXPECT_EQ(out_config()["eos_token_id"], ids) << "the tokenizer's, and what ends a turn";
  EXPECT_EQ(out_config()["bos_token_id"], 6);
  EXPECT_EQ(nlohmann::json::parse(read_file(options_.out / "generation_config.json")),
            nlohmann::json({{"temperature", 0.5}, {"eos_token_id", {1001, 7, 8, 1000}}}));
}

TEST_F(Merge, ATokenizerThatWeCannotReadChangesNoIds) {
  config_["eos_token_id"] = 7;
  write("adapter/tokenizer.json", R"({"model": {"type": "Unigram"}})");
  testing::internal::CaptureStderr();
  merge();
  EXPECT_PRED2(contains, testing::internal::GetCapturedStderr(), "stay the base's: ");
  EXPECT_EQ(out_config()["eos_token_id"], 7);
  EXPECT_TRUE(fs::exists(options_.out / "tokenizer.json"));
}

TEST_F(Merge, LinksThatLeadOutAreNotFollowed) {
  save();
  write("secret", "secret");
  fs::create_symlink(folder_ / "secret", folder_ / "base/tokenizer.json");
  EXPECT_THROW(merge_adapter(options_), IoError);
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(Merge, IsSplitIntoFiles) {
  options_.max_shard_bytes = 60;
  const auto merged = merge();
  EXPECT_EQ(merged.size(), base_.size());
  EXPECT_EQ(summary_.num_files, 3U);
  const auto index =
      nlohmann::json::parse(read_file(options_.out / "model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), base_.size());
  EXPECT_EQ(index["metadata"]["total_size"], 132);
}

TEST_F(Merge, DamagedPartsAreNotUsed) {
  for (const char* part : {"base", "adapter"}) {
    save();
    write_manifest(folder_ / part);
    EXPECT_NO_THROW(merge_adapter(options_));
    fs::remove_all(options_.out);
    auto damaged = part == std::string("base") ? base_ : adapter_;
    damaged.begin()->second.values[0] += 1;
    write_tensor_file(folder_ / part, part == std::string("base") ? "model" : "adapter_model",
                      damaged);
    EXPECT_PRED2(contains, refusal<IoError>([&] { merge_adapter(options_); }),
                 fmt::format("{} is damaged: ", (folder_ / part).string()));
    EXPECT_FALSE(fs::exists(options_.out));
    fs::remove(folder_ / part / "manifest.json");
  }
}

TEST_F(Merge, APickledAdapterIsAnsweredWithACommand) {
  save();
  fs::rename(folder_ / "adapter/adapter_model.safetensors", folder_ / "adapter/adapter_model.bin");
  const auto why = refusal<UserError>([&] { merge_adapter(options_); });
  EXPECT_PRED2(contains, why, "holds neither adapter_model.safetensors nor");
  EXPECT_PRED2(contains, why, "python3 -c \"import sys; import torch;");
}

}  // namespace
}  // namespace skein::convert
