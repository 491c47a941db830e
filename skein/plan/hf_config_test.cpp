// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/plan/families/decoder.h"
#include "skein/plan/families/gpt2.h"
#include "skein/plan/run_model.h"

namespace skein::plan {
namespace {

Decoder llama_of(const std::string& keys) {
  const auto config = parse_hf_config("{\"model_type\":\"llama\"" + keys + "}", "config.json");
  return dynamic_cast<const Decoder&>(*config.architecture);
}

Gpt2Config gpt_of(const std::string& keys) {
  const auto config = parse_hf_config("{\"model_type\":\"gpt2\"" + keys + "}", "config.json");
  return dynamic_cast<const Gpt2Config&>(*config.architecture);
}

std::string why_refused(const std::string& text) {
  return refusal<UserError>([&] { parse_hf_config(text, "m/config.json"); });
}

std::string llama_refusal(const std::string& keys) {
  return why_refused("{\"model_type\":\"llama\"" + keys + "}");
}

TEST(HfConfig, AbsentAndNullKeysTakeTransformersDefaults) {
  const auto llama = llama_of(R"(, "num_key_value_heads": null, "head_dim": null)");
  EXPECT_EQ(llama.key_heads, 32);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_FALSE(llama.tied_head);
  const auto gpt = gpt_of(R"(, "n_embd": 64, "n_head": 4)");
  EXPECT_EQ(gpt.n_inner, 256);
  EXPECT_EQ(gpt.attn_pdrop, 0.1);
  EXPECT_TRUE(gpt.tie_word_embeddings);
}

TEST(HfConfig, TellsWhetherTheHeadIsTied) {
  EXPECT_TRUE(parse_hf_config(R"({"model_type":"gpt2"})", "c").dimensions().tied_head);
  EXPECT_FALSE(parse_hf_config(R"({"model_type":"llama"})", "c").dimensions().tied_head);
}

TEST(HfConfig, AClassifierOfOneLabelScores) {
  const std::string keys = R"(, "architectures": ["LlamaForSequenceClassification"], "id2label": )";
  EXPECT_TRUE(llama_of(keys + R"({"0": "LABEL_0"})").scores);
  EXPECT_TRUE(
      gpt_of(R"(, "architectures": ["GPT2ForSequenceClassification"], "num_labels": 1)").scores);
  EXPECT_FALSE(llama_of(R"(, "architectures": ["LlamaForCausalLM"])").scores);
  for (const auto& more :
       {keys + R"({"0": "a", "1": "b"})",
        std::string(R"(, "architectures": ["LlamaForSequenceClassification"])")}) {
    EXPECT_PRED2(contains, llama_refusal(more), "is a classifier with 2 labels");
  }
}

TEST(HfConfig, AModelWithAScoreSaysSo) {
  for (const auto& [from, to] :
       {std::pair{"Qwen2ForCausalLM", "Qwen2ForSequenceClassification"},
        {"GPT2LMHeadModel", "GPT2ForSequenceClassification"},
        {"LlamaForSequenceClassification", "LlamaForSequenceClassification"},
        {"LlamaModel", "LlamaForSequenceClassification"}}) {
    const auto json = nlohmann::ordered_json::parse(
        config_with_score(nlohmann::json({{"z", 1}, {"architectures", {from}}}).dump()));
    EXPECT_EQ(json.at("architectures"), nlohmann::ordered_json::array({to}));
    if (std::string_view(from) == to) continue;
    EXPECT_EQ(json.at("id2label").dump(), R"({"0":"LABEL_0"})");
  }
  EXPECT_PRED2(contains, config_with_score(R"({"model_type":"gemma3_text"})"),
               "Gemma3TextForSequenceClassification");
  const auto text = parse_hf_config(
      R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"tie_word_embeddings":true})",
      "c");
  const auto scored = with_score(text);
  EXPECT_TRUE(scored.dimensions().scores);
  EXPECT_TRUE(parse_hf_config(scored.source, "c").dimensions().scores);
  EXPECT_EQ(with_score(scored).source, scored.source);
  EXPECT_PRED2(contains, refusal<UserError>([&] { require_text(scored, "m"); }),
               "'m' is a reward model");
  require_text(text, "m");
}

TEST(HfConfig, ReadsRopeThetaOfBothVersions) {
  EXPECT_EQ(llama_of(R"(, "rope_theta": 500000.0)").rope.theta, 500000);
  EXPECT_EQ(llama_of(R"(, "rope_theta": 1, "rope_parameters":
                         {"rope_theta": 7, "rope_type": "default"})")
                .rope.theta,
            7);
  EXPECT_EQ(llama_of(R"(, "rope_scaling": null)").rope.theta, 10000);
}

TEST(HfConfig, RefusesOtherRopeTypesByName) {
  const auto message = llama_refusal(R"(, "rope_scaling": {"type": "spiral", "factor": 2})");
  EXPECT_NE(message.find("m/config.json: rope_scaling: rope_type spiral"), std::string::npos)
      << message;
}

TEST(HfConfig, ReadsDtypeOfBothVersions) {
  EXPECT_EQ(parse_hf_config(R"({"model_type":"llama","torch_dtype":"bfloat16"})", "c").dtype,
            "bfloat16");
  EXPECT_EQ(parse_hf_config(R"({"model_type":"llama","dtype":"float16"})", "c").dtype, "float16");
}

TEST(HfConfig, ChoosesTheActivation) {
  EXPECT_FALSE(gpt_of("").gelu_is_exact);
  EXPECT_TRUE(gpt_of(R"(, "activation_function": "gelu")").gelu_is_exact);
  EXPECT_NE(why_refused(R"({"model_type":"gpt2","activation_function":"relu"})")
                .find("activation_function relu"),
            std::string::npos);
  EXPECT_EQ(llama_of("").activation, Activation::kSilu);
  EXPECT_EQ(llama_of(R"(, "hidden_act": "gelu")").activation, Activation::kGelu);
  EXPECT_NE(llama_refusal(R"(, "hidden_act": "relu")").find("hidden_act relu"), std::string::npos);
}

TEST(HfConfig, NamesFileKeyAndValue) {
  EXPECT_EQ(llama_refusal(R"(, "hidden_size": "big")"),
            "m/config.json: hidden_size is \"big\", expected an integer");
  EXPECT_NE(llama_refusal(R"(, "vocab_size": 0)").find("vocab_size is 0"), std::string::npos);
  EXPECT_NE(llama_refusal(R"(, "vocab_size": 18446744073709551615)").find("vocab_size"),
            std::string::npos);
  EXPECT_NE(llama_refusal(R"(, "num_hidden_layers": 99999)").find("1 and 10000"),
            std::string::npos);
  EXPECT_NE(llama_refusal(R"(, "rms_norm_eps": 0)").find("rms_norm_eps"), std::string::npos);
  EXPECT_NE(llama_refusal(R"(, "attention_dropout": 1.0)").find("attention_dropout"),
            std::string::npos);
  EXPECT_NE(llama_refusal(R"(, "num_key_value_heads": 5)").find("num_key_value_heads"),
            std::string::npos);
  EXPECT_NE(llama_refusal(R"(, "head_dim": 5)").find("head_dim"), std::string::npos);
}

TEST(HfConfig, RefusesWhatIsNoModelConfig) {
  EXPECT_NE(why_refused("").find("invalid JSON"), std::string::npos);
  EXPECT_NE(why_refused("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(why_refused("{\"model_type\":\"llama\"").find("invalid JSON"), std::string::npos);
  EXPECT_NE(why_refused("{\"a\":\"\xff\"}").find("invalid UTF-8"), std::string::npos);
  EXPECT_NE(why_refused("{}").find("no model_type"), std::string::npos);
  EXPECT_NE(why_refused(R"({"model_type":"bert"})").find("model_type bert"), std::string::npos);
  EXPECT_NE(why_refused(R"({"model_type":3})").find("model_type is 3"), std::string::npos);
}

TEST(HfConfig, RefusesDeepAndLargeFiles) {
  const auto deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_NE(why_refused(deep).find("deeper than 64 levels"), std::string::npos);
  EXPECT_NE(why_refused(std::string(size_t{17} << 20, ' ')).find("bytes, more than"),
            std::string::npos);
}

TEST(HfConfig, SavingKeepsUnknownKeysAndOrder) {
  const auto config = parse_hf_config(
      R"({"z":{"b":[1,2.5],"a":null},"model_type":"llama","torch_dtype":"float32","architectures":["X"]})",
      "c");
  EXPECT_EQ(hf_config_json(config, "bfloat16"), R"({
  "z": {
    "b": [
      1,
      2.5
    ],
    "a": null
  },
  "model_type": "llama",
  "torch_dtype": "bfloat16",
  "architectures": [
    "X"
  ]
}
)");
}

TEST(HfConfig, SavingAddsTheDtypeWhereNoneWas) {
  const auto config = parse_hf_config(R"({"model_type":"llama"})", "c");
  EXPECT_EQ(parse_hf_config(hf_config_json(config, "float32"), "c").dtype, "float32");
}

// What a run's keys change.
using nlohmann::ordered_json;

const std::string kSmallSizes =
    R"("hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "vocab_size": 17, "max_position_embeddings": 64)";

class RunModelTest : public TemporaryFolder {
 protected:
  void write_config(const std::string& text) const { write("config.json", text); }
  config::RunConfig asked(const std::string& type, double factor = 0, int64_t block_size = 100) {
    config::RunConfig config;
    config.model.model_name_or_path = folder_;
    config.model.rope_scaling = type;
    config.model.rope_scaling_factor = factor;
    config.data.block_size = block_size;
    return config;
  }
  static const Rope& rope_of(const HfConfig& model) {
    return dynamic_cast<const Decoder&>(*model.architecture).rope;
  }
  static std::string why_not(const config::RunConfig& config) {
    return refusal<UserError>([&] { read_run_model(config); });
  }
};

TEST_F(RunModelTest, TheFolderIsTakenAsItIs) {
  write_config(R"({"model_type": "llama",   "mine": [1], )" + kSmallSizes + "}");
  const auto text = read_file(folder_ / "config.json");
  EXPECT_EQ(read_run_model(asked("")).source, text);
  EXPECT_EQ(read_run_model(asked("none")).source, text);
  EXPECT_EQ(read_run_model(asked("yarn", 0, 64)).source, text) << "it fits";
  EXPECT_NE(rope_scaling_note(asked("yarn", 0, 64)).find("nothing is stretched"),
            std::string::npos);
  EXPECT_EQ(rope_scaling_note(asked("yarn")), "");
}

TEST_F(RunModelTest, EveryTypeInTheOlderWords) {
  write_config(R"({"model_type": "llama", "rope_theta": 500.0, "mine": 1, )" + kSmallSizes + "}");
  for (const auto* type : {"linear", "dynamic", "yarn", "llama3"}) {
    const auto model = read_run_model(asked(type));
    const auto json = ordered_json::parse(model.source);
    EXPECT_EQ(json.at("rope_scaling").at("rope_type"), type);
    EXPECT_EQ(json.at("rope_scaling").at("factor"), 2.0) << "ceil(100 / 64)";
    EXPECT_FALSE(json.contains("rope_parameters"));
    EXPECT_EQ(json.at("rope_theta"), 500.0);
    EXPECT_EQ(json.at("mine"), 1);
    const bool is_dynamic = std::string(type) == "dynamic";
    EXPECT_EQ(json.at("max_position_embeddings"), is_dynamic ? 64 : 128) << type;
    EXPECT_EQ(rope_of(model).factor, 2) << type;
    EXPECT_EQ(rope_of(model).theta, 500) << type;
    const auto original = rope_of(model).original_positions;
    EXPECT_EQ(original, 64) << type;
    EXPECT_EQ(model.dimensions().usable_positions(), 128) << type;
  }
}

TEST_F(RunModelTest, WhatIsStretchedIsNotStretchedAnew) {
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    write_config(std::string(R"({"model_type": "llama", ")") + key +
                 R"(": {"rope_type": "llama3", "factor": 8, "rope_theta": 500.0,
                     "original_max_position_embeddings": 32, "low_freq_factor": 1,
                     "high_freq_factor": 4}, )" +
                 kSmallSizes + "}");
    EXPECT_NE(refusal<UserError>([&] {
                read_run_model(asked("llama3", 2));
              }).find("stretches positions already (llama3, factor 8)"),
              std::string::npos)
        << key;
    EXPECT_NO_THROW(read_run_model(asked("llama3", 0, 64))) << "it fits";
    EXPECT_NE(why_not(asked("linear", 8)), "") << key;
    // Asked for what is there: nothing changes.
    const auto same = asked("llama3", 8);
    EXPECT_EQ(read_run_model(same).source, read_file(folder_ / "config.json"));
    EXPECT_FALSE(stretches_positions(same));
  }
  // With both keys the first counts, as for the model itself.
  write_config(R"({"model_type": "llama", "rope_parameters": {"rope_type": "default"},
      "rope_scaling": {"rope_type": "linear", "factor": 2.0}, )" +
               std::string(kSmallSizes) + "}");
  EXPECT_THROW(read_run_model(asked("linear", 3)), UserError);
  EXPECT_NO_THROW(read_run_model(asked("linear", 2)));
}

TEST_F(RunModelTest, TheNewerWordsStay) {
  write_config(R"({"model_type": "llama",
      "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, )" +
               kSmallSizes + "}");
  const auto model = read_run_model(asked("yarn", 3));
  const auto json = ordered_json::parse(model.source);
  EXPECT_FALSE(json.contains("rope_scaling"));
  EXPECT_EQ(json.at("rope_parameters"),
            ordered_json::parse(R"({"rope_theta": 500.0, "rope_type": "yarn", "factor": 3.0,
                                    "original_max_position_embeddings": 64})"));
  EXPECT_EQ(json.at("max_position_embeddings"), 192);
  EXPECT_EQ(rope_of(model).type, RopeType::kYarn);
}

TEST_F(RunModelTest, OfGemmaOnlyFullAttention) {
  write_config(R"({"model_type": "gemma3_text", "head_dim": 4, "num_key_value_heads": 1,
      "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 900.0},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}, )" +
               kSmallSizes + "}");
  const auto model = read_run_model(asked("linear"));
  const auto& decoder = dynamic_cast<const Decoder&>(*model.architecture);
  EXPECT_EQ(decoder.rope.type, RopeType::kLinear);
  EXPECT_EQ(decoder.rope.theta, 900);
  EXPECT_EQ(decoder.window_rope.type, RopeType::kDefault);
  EXPECT_EQ(decoder.window_rope.theta, 30);
}

// Such a model could be trained, and neither exported nor merged.
TEST_F(RunModelTest, AQuantisedModelIsRefused) {
  write_config(R"({"model_type": "llama", "quantization_config": {"bits": 4}, )" + kSmallSizes +
               "}");
  EXPECT_NE(why_not(asked("")).find("config.json: the model is quantised (quantization_config)"),
            std::string::npos)
      << why_not(asked(""));
  write_config(R"({"model_type": "llama", "quantization_config": null, )" + kSmallSizes + "}");
  EXPECT_EQ(why_not(asked("")), "");
}

TEST_F(RunModelTest, WhatDoesNotFitIsRefused) {
  write_config(R"({"model_type": "llama", )" + kSmallSizes + "}");
  EXPECT_NE(why_not(asked("linear", 0.5)).find("expected 0"), std::string::npos);
  EXPECT_NE(why_not(asked("", 2)).find("needs rope_scaling"), std::string::npos);
  write_config(R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1})");
  EXPECT_NE(why_not(asked("linear")).find("learned positions"), std::string::npos);
  write_config(R"({"model_type": "phi3", "pad_token_id": 0, )" + kSmallSizes + "}");
  EXPECT_NE(why_not(asked("linear")).find("longrope alone"), std::string::npos);
}

}  // namespace
}  // namespace skein::plan
