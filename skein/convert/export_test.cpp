// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/export.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "skein/convert/testing.h"
#include "skein/core/error.h"

namespace skein::convert {
namespace {

class Export : public TemporaryFolder {
 protected:
  Export() {
    write_tensor_file(folder_ / "model", "model", tensors_);
    write("model/config.json", R"({"model_type": "x", "torch_dtype": "float32", "a": 1})");
    write("model/trainer_state.json", "{}");
    write("model/optimizer.safetensors", "not read");
  }

  TestTensors tensors_ = {{"a.weight", {{2, 2}, {1, 2, 1.0F / 3, 1e6F}}},
                          {"b.bias", {{3}, {4, 5, 6}, DType::kBF16}}};
  ExportOptions options_{.model = folder_ / "model", .out = folder_ / "out"};
};

TEST_F(Export, CopiesTheModelAndNoState) {
  const auto summary = export_model(options_);
  EXPECT_EQ(read_tensor_files(options_.out), tensors_);
  EXPECT_FALSE(summary.verified);
  EXPECT_EQ(summary.num_tensors, 2U);
  EXPECT_EQ(std::distance(fs::directory_iterator(options_.out), {}), 2) << "weights and config";
}

TEST_F(Export, ConvertsWithOneRounding) {
  options_.dtype = DType::kBF16;
  export_model(options_);
  auto exported = read_tensor_files(options_.out);
  EXPECT_EQ(exported["a.weight"].dtype, DType::kBF16);
  EXPECT_EQ(exported["a.weight"].values[2], 0.333984375F);
  EXPECT_EQ(exported["b.bias"], tensors_["b.bias"]);
  const auto config = nlohmann::ordered_json::parse(read_file(options_.out / "config.json"));
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_FALSE(config.contains("dtype"));
}

TEST_F(Export, ValuesBeyondTheTypeAreRefused) {
  options_.dtype = DType::kF16;
  EXPECT_PRED2(contains, refusal<UserError>([&] { export_model(options_); }),
               "1 values of 'a.weight' are too large for float16");
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(Export, ACheckpointIsVerifiedFirst) {
  write_manifest(options_.model);
  EXPECT_TRUE(export_model(options_).verified);
  fs::remove_all(options_.out);
  // The optimizer is not looked at, the model is.
  write("model/optimizer.safetensors", "changed!");
  EXPECT_TRUE(export_model(options_).verified);
  fs::remove_all(options_.out);
  tensors_["a.weight"].values[0] = 7;
  write_tensor_file(options_.model, "model", tensors_);
  EXPECT_PRED2(contains, refusal<IoError>([&] { export_model(options_); }), "a.weight");
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(Export, AManifestOfOthersSaysNothing) {
  write("model/manifest.json", R"({"name": "an app", "files": []})");
  EXPECT_FALSE(export_model(options_).verified);
  fs::remove_all(options_.out);
  write("model/manifest.json", R"({"form)");
  EXPECT_THROW(export_model(options_), IoError);
}

TEST_F(Export, APickleIsAnsweredWithACommand) {
  fs::rename(options_.model / "model.safetensors", options_.model / "pytorch_model.bin");
  const auto why = refusal<UserError>([&] { export_model(options_); });
  EXPECT_PRED2(contains, why, "pickle files (.bin, .pt) are not read");
  EXPECT_PRED2(contains, why, "python3 -c \"import sys; from transformers import");
  EXPECT_PRED2(contains, why, "\" " + options_.model.string());
}

}  // namespace
}  // namespace skein::convert
