// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/schema.h"

#include <nlohmann/json.hpp>

#include "skein/config/compat/translated_keys.h"
#include "skein/config/field_index.h"
#include "skein/config/test_support.h"

namespace skein::config {
namespace {

const nlohmann::json& schema() {
  static const auto kSchema = nlohmann::json::parse(json_schema());
  return kSchema;
}

// The schema of a key; dots lead into sections. Null when there is none.
nlohmann::json schema_of(const std::string& key) {
  const auto* properties = &schema().at("properties");
  std::string rest = key;
  for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
    properties = &properties->at(rest.substr(0, dot)).at("properties");
  }
  return properties->value(rest, nlohmann::json());
}

TEST(Schema, HasEverySpellingAndMarksTheOthers) {
  for (const auto& [spelling, name] : field_index().canonical) {
    const auto found = schema_of(spelling);
    ASSERT_TRUE(found.is_object()) << spelling;
    EXPECT_EQ(found.value("deprecated", false), spelling != name) << spelling;
    EXPECT_EQ(found.contains("default"), spelling == name) << spelling;
  }
  for (const auto& name : translated_keys()) {
    if (name.find('.') == std::string::npos) {
      EXPECT_TRUE(schema_of(name).is_object()) << name;
    }
  }
}

TEST(Schema, KnowsWordsAndRanges) {
  EXPECT_EQ(schema_of("eval_strategy").at("enum").at(0), "no");
  EXPECT_EQ(schema_of("ddp_backend").at("enum"), (nlohmann::json{"auto", "nccl", "gloo"}));
  EXPECT_EQ(schema_of("block_size").at("anyOf").at(0).at("minimum"), 2);
  EXPECT_EQ(schema_of("adam_beta1").at("anyOf").at(0).at("exclusiveMaximum"), 1);
  EXPECT_EQ(schema_of("loss_scale").at("anyOf").back().at("const"), "dynamic");
  const auto takes = [](const char* key, const nlohmann::json& value) {
    const auto words = schema_of(key).at("enum");
    return std::ranges::count(words, value) > 0;
  };
  EXPECT_TRUE(takes("quantization_bit", 4) && takes("quantization_bit", nullptr));
  EXPECT_TRUE(takes("gradient_checkpointing", "offload") && takes("offload_optimizer", false));
  EXPECT_TRUE(takes("distributed_strategy", "deepspeed") && takes("ds_compat", 0.16));
  EXPECT_EQ(schema_of("per_device_train_batch_size").at("anyOf").back().at("const"), "auto");
  EXPECT_EQ(schema_of("report_to").at("default"), nlohmann::json{"tensorboard"});
  EXPECT_EQ(schema().at("additionalProperties"), false);
}

}  // namespace
}  // namespace skein::config
