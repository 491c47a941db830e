// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// What each family's keys and defaults come to.
#include "skein/plan/families/families.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/plan/families/decoder.h"
#include "skein/plan/hf_config.h"

namespace skein::plan {
namespace {

Decoder decoder_of(const std::string& type, const std::string& keys = "") {
  const auto config =
      parse_hf_config("{\"model_type\":\"" + type + "\"" + keys + "}", "config.json");
  return dynamic_cast<const Decoder&>(*config.architecture);
}

std::string why_refused(const std::string& type, const std::string& keys) {
  return refusal<UserError>([&] { decoder_of(type, keys); });
}

using Windows = std::vector<int64_t>;

TEST(Families, AreRefusedByNameWhereThereIsNoCode) {
  const auto message = refusal<UserError>(
      [] { parse_hf_config(R"({"model_type": "deepseek_v3"})", "m/config.json"); });
  EXPECT_EQ(message,
            "m/config.json: model_type deepseek_v3 is not supported (llama, mistral, qwen2, qwen3, "
            "gemma2, gemma3_text, phi3, gpt2)");
}

TEST(Families, MistralsWindowIsTakenAwayByNull) {
  EXPECT_EQ(decoder_of("mistral").window(31), 4096);
  EXPECT_EQ(decoder_of("mistral", R"(, "sliding_window": null)").window(31), 0);
  EXPECT_EQ(decoder_of("mistral", R"(, "sliding_window": 7)").window(0), 7);
  EXPECT_EQ(decoder_of("mistral").key_heads, 8);
  EXPECT_EQ(decoder_of("mistral", R"(, "num_key_value_heads": null)").key_heads, 32);
  EXPECT_EQ(decoder_of("mistral", R"(, "head_dim": 160)").head_dim, 160);
}

TEST(Families, SayWhyPromptsAreNotShared) {
  const auto why = [](const std::string& type, const std::string& keys, int64_t longest) {
    const auto text = "{\"model_type\":\"" + type + "\"" + keys + "}";
    return parse_hf_config(text, "config.json").architecture->sharing_refusal(longest);
  };
  EXPECT_EQ(why("llama", "", 100000), "");
  EXPECT_EQ(why("mistral", "", 4096), "") << "the window is never full";
  EXPECT_EQ(why("mistral", "", 4097), "config.json: sliding_window is 4096");
  EXPECT_PRED2(contains, why("gemma2", "", 10), "attn_logit_softcapping is 50");
  EXPECT_PRED2(contains, why("gemma3_text", "", 5000), "sliding_window is");
  EXPECT_PRED2(contains, why("llama", R"(, "attention_dropout": 0.1)", 10), "attention_dropout is");
  EXPECT_PRED2(contains, why("phi3", R"(, "resid_pdrop": 0.1, "sliding_window": null)", 10),
               "resid_pdrop is 0.1");
  const std::string dynamic = R"(, "max_position_embeddings": 64, "rope_scaling":
      {"rope_type": "dynamic", "factor": 2})";
  EXPECT_EQ(why("llama", dynamic, 64), "");
  EXPECT_PRED2(contains, why("llama", dynamic, 65), "beyond 64 tokens RoPE turns by the length");
  EXPECT_PRED2(contains, why("gpt2", "", 10), "embd_pdrop is 0.1");
  EXPECT_EQ(why("gpt2", R"(, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0)", 10), "");
}

TEST(Families, QwenSlidesWhereItIsToldTo) {
  const std::string keys = R"(, "num_hidden_layers": 3, "max_window_layers": 1,
                              "sliding_window": 5)";
  EXPECT_EQ(decoder_of("qwen2", keys).windows, (Windows{0, 0, 0}));
  const auto sliding = keys + R"(, "use_sliding_window": true)";
  EXPECT_EQ(decoder_of("qwen2", sliding).windows, (Windows{0, 5, 5}));
  const auto named = sliding + R"(, "layer_types": ["sliding_attention", "full_attention",
                                                    "full_attention"])";
  EXPECT_EQ(decoder_of("qwen3", named).windows, (Windows{5, 0, 0}));
}

TEST(Families, QwensBiasesAndNorms) {
  const auto qwen2 = decoder_of("qwen2"), qwen3 = decoder_of("qwen3");
  EXPECT_TRUE(qwen2.query_key_value_bias);
  EXPECT_FALSE(qwen2.attention_out_bias);
  EXPECT_FALSE(qwen2.query_key_norms);
  EXPECT_FALSE(qwen3.query_key_value_bias);
  EXPECT_TRUE(qwen3.query_key_norms);
  EXPECT_EQ(decoder_of("qwen3", R"(, "hidden_size": 1024, "num_attention_heads": 16,
                                   "num_key_value_heads": 8)")
                .head_dim,
            128);
}

TEST(Families, Gemma2CapsAndAlternates) {
  const auto gemma = decoder_of("gemma2", R"(, "num_hidden_layers": 3)");
  EXPECT_EQ(gemma.windows, (Windows{4096, 0, 4096}));
  EXPECT_EQ(gemma.score_cap, 50);
  EXPECT_EQ(gemma.logit_cap, 30);
  EXPECT_EQ(gemma.score_scale, 1.0 / 16);
  EXPECT_EQ(gemma.embedding_scale, std::sqrt(2304.0));
  EXPECT_TRUE(gemma.tied_head);
  EXPECT_NE(gemma.training_advice().find("attn_logit_softcapping is 50"), std::string::npos);
  const auto plain =
      decoder_of("gemma2", R"(, "attn_logit_softcapping": null, "final_logit_softcapping": null)");
  EXPECT_FALSE(plain.score_cap);
  EXPECT_FALSE(plain.logit_cap);
  EXPECT_EQ(plain.training_advice(), "");
}

TEST(Families, Gemma3HasTwoRopes) {
  const auto old = decoder_of("gemma3_text", R"(, "num_hidden_layers": 7, "sliding_window": 512,
      "rope_theta": 2e6, "rope_local_base_freq": 5e4,
      "rope_scaling": {"rope_type": "linear", "factor": 8})");
  EXPECT_EQ(old.windows, (Windows{512, 512, 512, 512, 512, 0, 512}));
  EXPECT_EQ(old.rope.theta, 2e6);
  EXPECT_EQ(old.rope.type, RopeType::kLinear);
  EXPECT_EQ(old.window_rope.theta, 5e4);
  EXPECT_EQ(old.window_rope.type, RopeType::kDefault);
  const auto renewed = decoder_of("gemma3_text", R"(, "num_hidden_layers": 7,
      "sliding_window": 512, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 2e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e4}})");
  EXPECT_EQ(renewed.rope, old.rope);
  EXPECT_EQ(renewed.window_rope, old.window_rope);
  EXPECT_EQ(decoder_of("gemma3_text", R"(, "sliding_window_pattern": 2)").window(1), 0);
  EXPECT_EQ(decoder_of("gemma3_text").rope.theta, 1e6);
}

TEST(Families, PhiHasFusedProjections) {
  const auto phi = decoder_of("phi3", R"(, "partial_rotary_factor": 0.75)");
  EXPECT_TRUE(phi.fused_projections);
  EXPECT_EQ(phi.rope.channels, 72);
  EXPECT_EQ(phi.head_dim, 96);
  EXPECT_EQ(phi.norm_epsilon, 1e-5);
  EXPECT_EQ(phi.window(0), 0);
  EXPECT_EQ(phi.parts(3)[1].name, "model.layers.3.self_attn.qkv_proj");
  EXPECT_EQ(phi.parts(3)[1].out, 3 * 3072);
}

TEST(Families, PhiTakesLongRopeUnderItsOlderNames) {
  const std::string factors = R"("short_factor": [1, 2], "long_factor": [3, 4])";
  for (const auto* name : {"su", "yarn", "longrope"}) {
    const auto phi = decoder_of("phi3", R"(, "hidden_size": 16, "num_attention_heads": 4,
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": ")" + std::string(name) +
                                            "\", " + factors + "}");
    EXPECT_EQ(phi.rope.type, RopeType::kLongRope);
    EXPECT_EQ(phi.rope.original_positions, 4096);
    EXPECT_EQ(phi.rope.long_factors, (std::vector<double>{3, 4}));
    EXPECT_DOUBLE_EQ(phi.rope.magnitude, std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
  }
  EXPECT_NE(why_refused("phi3", R"(, "rope_scaling": {"type": "su", )" + factors + "}")
                .find("need 48 numbers each"),
            std::string::npos);
}

// Values by hand from the formulas of the paper: 32 turns and 1 turn within 4096 positions.
TEST(Families, WorkYarnsRampOut) {
  const auto rope = decoder_of("llama", R"(, "rope_scaling": {"rope_type": "yarn", "factor": 8,
      "original_max_position_embeddings": 4096})")
                        .rope;
  EXPECT_EQ(rope.ramp_begin, 20);  // ⌊128 ln(4096 / 64π) / 2 ln 10000⌋
  EXPECT_EQ(rope.ramp_end, 46);    // ⌈128 ln(4096 / 2π) / 2 ln 10000⌉
  EXPECT_DOUBLE_EQ(rope.magnitude, 0.1 * std::log(8.0) + 1);
  EXPECT_EQ(rope.original_positions, 4096);
}

TEST(Families, ReadLlama3sRope) {
  const auto rope = decoder_of("llama", R"(, "rope_theta": 5e5, "rope_scaling": {
      "rope_type": "llama3", "factor": 32, "low_freq_factor": 1, "high_freq_factor": 4,
      "original_max_position_embeddings": 8192})")
                        .rope;
  EXPECT_EQ(rope.type, RopeType::kLlama3);
  EXPECT_EQ(rope.theta, 5e5);
  EXPECT_EQ(rope.factor, 32);
  EXPECT_EQ(rope.original_positions, 8192);
}

// Files may count positions from before they were stretched (advice for Qwen, dynamic), or after.
TEST(Families, KnowTheLongestTextThatTheyAreMadeFor) {
  const auto usable = [](const std::string& type, const std::string& rope) {
    return decoder_of(type, R"(, "max_position_embeddings": 32)" + rope)
        .dimensions()
        .usable_positions();
  };
  const auto scaled = [](const std::string& keys) {
    return R"(, "rope_scaling": {"rope_type": )" + keys + "}";
  };
  const std::string yarn = R"("yarn", "factor": 4, "original_max_position_embeddings": )";
  EXPECT_EQ(usable("llama", ""), 32);
  EXPECT_EQ(usable("qwen2", scaled(yarn + "32")), 128);
  EXPECT_EQ(usable("qwen2", scaled(yarn + "8")), 32);
  EXPECT_EQ(usable("qwen2", scaled(yarn + "4")), 32) << "no less than the file says";
  EXPECT_EQ(usable("llama", scaled(R"("dynamic", "factor": 1.9)")), 60);
  EXPECT_EQ(usable("llama", scaled(R"("dynamic", "factor": 0.5)")), 32);
  EXPECT_EQ(usable("llama", scaled(R"("linear", "factor": 2.5)")), 80);
  EXPECT_EQ(usable("llama", scaled(R"("linear", "factor": 2)") +
                                R"(, "original_max_position_embeddings": 16)"),
            32)
      << "multiplied by a run of ours";
  EXPECT_EQ(usable("llama", scaled(R"("llama3", "factor": 32, "low_freq_factor": 1,
                "high_freq_factor": 4, "original_max_position_embeddings": 8)")),
            32)
      << "as Llama 3.2 counts them";
  EXPECT_EQ(usable("gemma3_text", scaled(R"("linear", "factor": 8)")), 32) << "as its files are";
  EXPECT_EQ(usable("llama", scaled(R"("dynamic", "factor": 9e29)")), int64_t{1} << 53);
}

TEST(Families, RefuseWhatTheyDoNotCompute) {
  const auto expect = [](const std::string& type, const std::string& keys, const char* words) {
    const auto message = why_refused(type, keys);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect("qwen2", R"(, "layer_types": ["full_attention"])", "layer_types names 1 layers");
  expect("qwen2", R"(, "num_hidden_layers": 1, "layer_types": ["chunked_attention"])",
         "layer_types: chunked_attention is not supported");
  expect("gemma2", R"(, "use_bidirectional_attention": true)", "use_bidirectional_attention");
  expect("gemma3_text", R"(, "attn_logit_softcapping": 50.0)", "attn_logit_softcapping");
  expect("gemma3_text", R"(, "rope_parameters": {"rope_theta": 3})", "full_attention");
  expect("llama", R"(, "partial_rotary_factor": 0.5)", "partial_rotary_factor");
  expect("llama", R"(, "rope_scaling": {"type": "linear"})", "needs a factor");
  expect("mistral", R"(, "sliding_window": 0)", "sliding_window is 0");
}

}  // namespace
}  // namespace skein::plan
