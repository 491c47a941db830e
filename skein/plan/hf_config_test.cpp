// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/hf_config.h"

#include <gtest/gtest.h>

#include <string>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/plan/decoder.h"
#include "skein/plan/gpt2.h"

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

}  // namespace
}  // namespace skein::plan
