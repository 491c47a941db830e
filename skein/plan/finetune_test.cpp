// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/finetune.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "skein/adapter/tensor_names.h"
#include "skein/checkpoint/files/file_layout.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/plan/continuation.h"
#include "skein/plan/preferences.h"
#include "skein/text/test_tokenizer.h"

namespace skein::plan {
namespace {

constexpr const char* kLlama = R"({"model_type": "llama", "vocab_size": 19, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2})";

class FinetuneTest : public TemporaryFolder {
 protected:
  FinetuneTest() {
    write_model("base", '1');
    keys().finetuning_type = config::FinetuningType::kLora;
    resolved_.config.model.model_name_or_path = (folder_ / "base").string();
  }

  config::FinetuneConfig& keys() { return resolved_.config.finetune; }
  config::RunConfig& config() { return resolved_.config; }
  HfConfig model() { return read_hf_config(config().model.model_name_or_path); }
  void give(const char* key) { resolved_.origins[key] = {config::Origin::Kind::kCommandLine}; }

  void write(const std::string& name, const std::string& text) {
    make_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, text);
  }

  // All bytes are `filling`.
  void write_tensors(const std::string& name, const std::string& stem,
                     const std::vector<checkpoint::TensorEntry>& entries, char filling) {
    const auto file = checkpoint::lay_out_files(stem, entries).files.at(0);
    write(name + "/" + file.name,
          file.header + std::string(file.size - file.header.size(), filling));
  }

  void write_model(const std::string& name, char filling) {
    write(name + "/config.json", kLlama);
    std::vector<checkpoint::TensorEntry> entries;
    for (const auto& parameter : parse_hf_config(kLlama, "").shapes().parameters) {
      entries.push_back(entry(parameter.name, parameter));
    }
    write_tensors(name, "model", entries, filling);
  }

  // An adapter of rank 2 on q_proj as PEFT stores it, of which `base` is the base.
  std::vector<checkpoint::TensorEntry> write_adapter(const std::string& base) {
    config::RunConfig made = config();
    made.model.model_name_or_path = (folder_ / base).string();
    made.finetune = {.finetuning_type = config::FinetuningType::kLora,
                     .lora_rank = 2,
                     .lora_target = {"q_proj"}};
    write("adapter/adapter_config.json", adapter_config_of(made, model()));
    std::vector<checkpoint::TensorEntry> entries;
    for (const auto& parameter : tuned_model(made, model()).shapes.parameters) {
      if (parameter.adapter)
        entries.push_back(entry(adapter::file_name(parameter.name), parameter));
    }
    write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
    keys().adapter_name_or_path = (folder_ / "adapter").string();
    return entries;
  }

  static checkpoint::TensorEntry entry(const std::string& name, const ParameterShape& parameter) {
    return {name, DType::kF32, {parameter.shape.begin(), parameter.shape.end()}};
  }

  std::string adapter_refused() {
    return refusal<UserError>([&] { check_adapter(config(), model()); });
  }
  std::string keys_refused() {
    return refusal<UserError>([&] { check_finetune_keys(resolved_); });
  }

  // A checkpoint of this configuration, as far as it is compared.
  void write_checkpoint() {
    const DataIdentity identity{.tuning = tuning_identity(config(), model())};
    write("run/trainer_state.json", trainer_state_text({.step = 1, .identity = identity}));
    write("run/adapter_config.json", identity.tuning.adapter_config);
    write("run/config.json", kLlama);
    write("run/optimizer.safetensors", "");
  }
  std::string continuation_refused() {
    const DataIdentity identity{.tuning = tuning_identity(config(), model())};
    return refusal<UserError>([&] { check_continuation(folder_ / "run", model(), identity); });
  }

  config::Resolved resolved_;
};

TEST_F(FinetuneTest, KeysBecomePeftsConfiguration) {
  keys().lora_rank = 4;
  keys().use_rslora = true;
  keys().rank_pattern = {{"q_proj", 2}};
  keys().modules_to_save = {"lm_head"};
  const auto text = adapter_config_of(config(), model());
  const auto written = adapter::parse_adapter_config(text, "written");
  EXPECT_EQ(written.rank, 4);
  EXPECT_EQ(written.alpha, 8) << "twice the rank";
  EXPECT_TRUE(written.use_rslora);
  EXPECT_EQ(written.rank_pattern, (adapter::ModuleValues<int64_t>{{"q_proj", 2}}));
  EXPECT_EQ(written.base_model, (folder_ / "base").string());
  EXPECT_EQ(written.task_type, "CAUSAL_LM");
  EXPECT_EQ(written.targets.names,
            (std::vector<std::string>{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj",
                                      "up_proj", "v_proj"}))
      << "all, by name: not every program that reads adapters knows all-linear";
  keys().lora_alpha = 3;
  keys().lora_target = {R"(.*\.1\..*q_proj)"};
  const auto again = adapter::parse_adapter_config(adapter_config_of(config(), model()), "again");
  EXPECT_EQ(again.alpha, 3);
  EXPECT_EQ(again.targets.pattern, keys().lora_target[0]);
}

TEST_F(FinetuneTest, WhatTrainsFollowsFromTheType) {
  keys().lora_target = {"q_proj"};
  EXPECT_EQ(tuned_model(config(), model()).shapes.trainable_numel(), 2 * 2 * 8 * 8);
  keys().finetuning_type = config::FinetuningType::kFreeze;
  keys().freeze_trainable_layers = 1;
  const auto half = tuned_model(config(), model()).shapes;
  EXPECT_EQ(half.trainable_numel(), half.unit_numel(2));
  config().stage = config::TrainingStage::kReward;
  const auto scored = tuned_model(config(), with_score(model())).shapes;
  EXPECT_EQ(scored.trainable_numel(), half.unit_numel(2) + 8)
      << "a new head does not stay as it is";
  config().stage = config::TrainingStage::kSft;
  keys().finetuning_type = config::FinetuningType::kFull;
  EXPECT_EQ(tuned_model(config(), model()).shapes.trainable_numel(), model().shapes().numel());
}

TEST_F(FinetuneTest, AForgottenTypeIsRefused) {
  keys().finetuning_type = config::FinetuningType::kFull;
  keys().lora_rank = 16;
  give("lora_rank");
  EXPECT_EQ(keys_refused(),
            "command line: lora_rank has no effect with finetuning_type full: give "
            "finetuning_type=lora, or leave it out");
  give("finetuning_type");
  EXPECT_EQ(keys_refused(), "");
  EXPECT_EQ(finetune_warnings(resolved_),
            std::vector<std::string>{"lora_rank has no effect with finetuning_type full"});
  keys() = {.finetuning_type = config::FinetuningType::kLora, .freeze_trainable_layers = 3};
  EXPECT_EQ(finetune_warnings(resolved_).size(), 1U);
}

TEST_F(FinetuneTest, AnAdapterNeedsABase) {
  config().model.train_from_scratch = true;
  EXPECT_NE(keys_refused().find("train_from_scratch"), std::string::npos) << keys_refused();
}

TEST_F(FinetuneTest, ATargetThatMatchesNoLayerIsRefusedWithTheNearest) {
  keys().lora_target = {"q_prj"};
  const auto why = refusal<UserError>([&] { tuned_model(config(), model()); });
  EXPECT_NE(why.find("q_proj"), std::string::npos) << why;
  keys().lora_target = {"all_linear"};
  EXPECT_PRED2(contains, refusal<UserError>([&] { tuned_model(config(), model()); }),
               "lora_target: the model has no module 'all_linear'; did you mean 'all-linear'?");
}

TEST_F(FinetuneTest, AnAdapterSaysItselfWhatItIs) {
  write_adapter("base");
  keys().lora_rank = 8;
  give("lora_rank");
  EXPECT_EQ(tuning_of(config()).lora->rank, 2);
  check_adapter(config(), model());
  const auto warnings = finetune_warnings(resolved_);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], fmt::format("lora_rank differ from what {} says, which counts",
                                     (folder_ / "adapter/adapter_config.json").string()));
}

TEST_F(FinetuneTest, AnAdapterIsReadWithItsOwnTokenizer) {
  write_adapter("base");
  auto& named = config().model.tokenizer_name_or_path;
  take_adapter_tokenizer(resolved_);
  EXPECT_EQ(named, "") << "it has none, as PEFT saves adapters";
  write("adapter/tokenizer.json", text::byte_tokenizer_json({}));
  named = "mine";
  take_adapter_tokenizer(resolved_);
  EXPECT_EQ(named, "mine");
  EXPECT_TRUE(resolved_.notes.empty());
  named = "";
  take_adapter_tokenizer(resolved_);
  EXPECT_EQ(named, keys().adapter_name_or_path);
  ASSERT_EQ(resolved_.notes.size(), 1U);
  EXPECT_PRED2(contains, resolved_.notes[0], keys().adapter_name_or_path);
}

TEST_F(FinetuneTest, AdapterTensorsThatDoNotMatchAreCountedAndNamed) {
  auto entries = write_adapter("base");
  const auto lost = entries.back().name;
  entries.pop_back();
  entries.push_back({"base_model.model.visual.lora_A.weight", DType::kF32, {2, 2}});
  write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
  const auto why = adapter_refused();
  EXPECT_NE(why.find("missing in the files (1): " + lost), std::string::npos) << why;
  EXPECT_NE(why.find("not part of it (1): base_model.model.visual"), std::string::npos) << why;
}

// PEFT stores them when the embedding was adapted or the vocabulary has grown.
TEST_F(FinetuneTest, TheBasesEmbeddingMayLieBesideAnAdapter) {
  auto entries = write_adapter("base");
  entries.push_back({"base_model.model.lm_head.weight", DType::kF32, {19, 8}});
  entries.push_back(
      {"base_model.model.model.embed_tokens.base_layer.weight", DType::kF32, {19, 8}});
  write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
  check_adapter(config(), model());
}

TEST_F(FinetuneTest, OfATiedModelTheEmbeddingMayLieThereTwice) {
  write("base/config.json", std::string(kLlama).insert(1, R"("tie_word_embeddings": true, )"));
  auto entries = write_adapter("base");
  entries.push_back({"base_model.model.model.embed_tokens.weight", DType::kF32, {19, 8}});
  entries.push_back({"base_model.model.lm_head.weight", DType::kF32, {19, 8}});
  write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
  EXPECT_EQ(adapter_refused(), "");
  for (auto& entry : entries) {
    if (!adapter::is_adapter_tensor(entry.name)) entry.shape = {20, 8};
  }
  write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
  const auto grown = adapter_refused();
  EXPECT_PRED2(contains, grown, "of another shape (2): base_model.model.lm_head.weight is [20, 8]");
  EXPECT_PRED2(contains, grown, "`skein merge " + keys().adapter_name_or_path + " --out DIR`");
  entries[0].shape = {3, 8};
  write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
  EXPECT_FALSE(contains(adapter_refused(), "skein merge")) << "which would not help";
}

TEST_F(FinetuneTest, AnAdapterOfAnotherBaseIsRefused) {
  write_model("other", '2');
  write_adapter("other");
  const auto why = adapter_refused();
  EXPECT_NE(why.find((folder_ / "other").string()), std::string::npos) << why;
  EXPECT_NE(why.find((folder_ / "base").string()), std::string::npos) << why;
  // The folder that it was made with is gone, but skein has noted its digest.
  config().model.model_name_or_path = (folder_ / "other").string();
  keys().adapter_name_or_path = "";
  const DataIdentity identity{.tuning = tuning_identity(config(), model())};
  write("adapter/trainer_state.json", trainer_state_text({.step = 1, .identity = identity}));
  fs::remove_all(folder_ / "other");
  config().model.model_name_or_path = (folder_ / "base").string();
  keys().adapter_name_or_path = (folder_ / "adapter").string();
  EXPECT_EQ(adapter_refused(), why);
}

// Of a family with other modules: what is wrong is the base, or the adapter, not a key of the run.
TEST_F(FinetuneTest, AnAdapterOfAnotherFamilyIsRefusedByItsName) {
  write_model("other", '2');
  write_adapter("other");
  const auto file = folder_ / "adapter/adapter_config.json";
  auto text = read_file(file);
  for (size_t at; (at = text.find("q_proj")) != std::string::npos;) text.replace(at, 6, "c_attn");
  write("adapter/adapter_config.json", text);
  EXPECT_PRED2(contains, adapter_refused(), "is an adapter of " + (folder_ / "other").string());
  fs::remove_all(folder_ / "other");
  EXPECT_PRED2(contains, adapter_refused(),
               file.string() + ": target_modules: the model has no module 'c_attn'");
}

TEST_F(FinetuneTest, BrokenAdaptersAreRefused) {
  write_adapter("base");
  const auto path = folder_ / "adapter/adapter_model.safetensors";
  fs::resize_file(path, fs::file_size(path) - 8);
  EXPECT_NE(refusal<IoError>([&] { check_adapter(config(), model()); }), "");
  fs::remove(path);
  EXPECT_NE(adapter_refused().find("adapter_model.safetensors"), std::string::npos);
  write("adapter/adapter_config.json", R"({"peft_type": "IA3"})");
  EXPECT_NE(adapter_refused().find("peft_type is 'IA3'"), std::string::npos);
  fs::remove(folder_ / "adapter/adapter_config.json");
  EXPECT_NE(adapter_refused().find("is no adapter"), std::string::npos);
}

TEST_F(FinetuneTest, ACheckpointIsContinuedBesideItsBaseAlone) {
  write_checkpoint();
  EXPECT_EQ(continuation_refused(), "");
  write_model("other", '2');
  config().model.model_name_or_path = (folder_ / "other").string();
  const auto why = continuation_refused();
  EXPECT_NE(why.find((folder_ / "other").string()), std::string::npos) << why;
  EXPECT_NE(why.find((folder_ / "base").string()), std::string::npos) << why;
}

// Weights that were copied elsewhere, or split into other files, are the same.
TEST_F(FinetuneTest, ABaseIsKnownByItsWeights) {
  write_checkpoint();
  write_model("moved", '1');
  config().model.model_name_or_path = (folder_ / "moved").string();
  EXPECT_EQ(continuation_refused(), "");
}

TEST_F(FinetuneTest, ACheckpointIsContinuedWithTheSameAdapter) {
  write_checkpoint();
  keys().lora_rank = 16;
  EXPECT_NE(continuation_refused().find("r is 8 there and 16 here"), std::string::npos)
      << continuation_refused();
  keys() = {.finetuning_type = config::FinetuningType::kFull};
  EXPECT_NE(continuation_refused().find("was saved with finetuning_type lora, this start has full"),
            std::string::npos);
  keys() = {.finetuning_type = config::FinetuningType::kFreeze};
  write_checkpoint();
  EXPECT_EQ(continuation_refused(), "");
  keys().freeze_trainable_layers = 1;
  EXPECT_NE(continuation_refused(), "");
}

// Of a tied head PEFT stores the embedding under the head's name.
TEST_F(FinetuneTest, AnAdapterOfATiedHead) {
  const auto tied = std::string(kLlama).insert(1, R"("tie_word_embeddings": true, )");
  write("base/config.json", tied);
  config::RunConfig made = config();
  made.finetune.lora_target = {"q_proj", "lm_head"};
  write("adapter/adapter_config.json", adapter_config_of(made, model()));
  std::vector<checkpoint::TensorEntry> entries;
  for (const auto& parameter : tuned_model(made, model()).shapes.parameters) {
    if (parameter.adapter) entries.push_back(entry(adapter::file_name(parameter.name), parameter));
  }
  keys().adapter_name_or_path = (folder_ / "adapter").string();
  write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
  EXPECT_EQ(adapter_refused(), "") << "as skein stores it";
  const std::string under_head = "base_model.model.lm_head.base_layer.weight";
  entries.push_back({under_head, DType::kF32, {19, 8}});
  write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
  EXPECT_EQ(adapter_refused(), "");
  entries.back().shape = {19, 9};
  write_tensors("adapter", checkpoint::kAdapterStem, entries, '0');
  EXPECT_PRED2(contains, adapter_refused(), under_head);
}

TEST_F(FinetuneTest, PositionsOfTheBaseStay) {
  give("finetuning_type");
  config().model.rope_scaling = "linear";
  config().data.block_size = 4096;
  EXPECT_PRED2(contains, keys_refused(), "rope_scaling=linear changes the base's config.json");
  config().data.block_size = 2048;
  EXPECT_EQ(keys_refused(), "") << "nothing is stretched";
  config().model.rope_scaling_factor = 4;
  EXPECT_NE(keys_refused(), "");
  write("base/config.json",
        std::string(kLlama).insert(1, R"("rope_scaling": {"type": "linear", "factor": 4}, )"));
  EXPECT_EQ(keys_refused(), "") << "it is stretched so";
}

TEST_F(FinetuneTest, LayersThatAreStoredTheOtherWayRoundAreToldOf) {
  const auto written = [&] {
    return adapter::parse_adapter_config(adapter_config_of(config(), model()), "written");
  };
  EXPECT_FALSE(written().fan_in_fan_out);
  write("base/config.json",
        R"({"model_type": "gpt2", "vocab_size": 19, "n_embd": 8, "n_head": 2, "n_layer": 1})");
  EXPECT_TRUE(written().fan_in_fan_out);
}

TEST_F(FinetuneTest, OfARunThatIsNotFinishedACheckpointIsNamed) {
  write_adapter("base");
  make_directories(folder_ / "run");
  fs::rename(folder_ / "adapter", folder_ / "run/checkpoint-5");
  fs::create_directory_symlink("checkpoint-5", folder_ / "run/latest");
  keys().adapter_name_or_path = (folder_ / "run").string();
  EXPECT_PRED2(
      contains, adapter_refused(),
      "is not finished: name its latest checkpoint, " + (folder_ / "run/checkpoint-5").string());
  keys().adapter_name_or_path = (folder_ / "run/latest").string();
  EXPECT_EQ(adapter_refused(), "");
}

// By what trains, not by how it is called.
TEST_F(FinetuneTest, RowsOfNewTokensThatStayAreTold) {
  write("base/tokenizer.json", text::byte_tokenizer_json({}));
  config().model.new_special_tokens = {"<|a|>"};
  config().model.resize_vocab = true;
  const auto said = [&] {
    const auto warnings = finetune_warnings(resolved_);
    return warnings.empty() ? "" : warnings.back();
  };
  EXPECT_EQ(said(),
            "the rows of new_special_tokens in embed_tokens,lm_head do not train: "
            "modules_to_save=embed_tokens,lm_head trains them");
  keys().modules_to_save = {"embed_tokens"};
  EXPECT_PRED2(contains, said(), "in lm_head do not train");
  keys().modules_to_save = {"embed_tokens", "lm_head"};
  EXPECT_EQ(said(), "");
  keys().modules_to_save = {};
  keys().lora_target = {"embed_tokens", "lm_head"};
  EXPECT_EQ(said(), "") << "adapters train them too";
  keys() = {.finetuning_type = config::FinetuningType::kFreeze};
  EXPECT_PRED2(contains, said(), "freeze_extra_modules=embed_tokens,lm_head");
  keys().freeze_extra_modules = {"embed_tokens", "lm_head"};
  EXPECT_EQ(said(), "");
  keys() = {};
  EXPECT_EQ(said(), "");
}

TEST_F(FinetuneTest, PairsShareTheirPromptWhereNothingDraws) {
  config().stage = config::TrainingStage::kDpo;
  EXPECT_TRUE(shares_prompts(config(), model()));
  EXPECT_EQ(sharing_note(config(), model()), "");
  keys().lora_dropout = 0.1;
  EXPECT_FALSE(shares_prompts(config(), model()));
  EXPECT_PRED2(
      contains, sharing_note(config(), model()),
      "share_prompts is off, and prompts are computed for each answer: lora_dropout is 0.1");
  keys().lora_dropout = 0;
  keys().neftune_noise_alpha = 5;
  EXPECT_PRED2(contains, sharing_note(config(), model()), "neftune_noise_alpha is 5");
  config().preference.share_prompts = false;
  EXPECT_EQ(sharing_note(config(), model()), "") << "nobody asks for it";
  config().preference.share_prompts = true;
  keys().neftune_noise_alpha = 0;
  config().stage = config::TrainingStage::kKto;
  EXPECT_FALSE(shares_prompts(config(), model())) << "answers alone";
}

}  // namespace
}  // namespace skein::plan
