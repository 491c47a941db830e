// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/model_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/plan/hf_config.h"

namespace skein::plan {
namespace {

class ModelFolderTest : public TemporaryFolder {
 protected:
  // Weights whose bytes are `filling`.
  fs::path model(const std::string& name, char filling = '1') {
    write(name + "/config.json", "{}");
    const auto file = checkpoint::lay_out_files("model", {{"a", DType::kF32, {4}}}).files.at(0);
    write(name + "/" + file.name,
          file.header + std::string(file.size - file.header.size(), filling));
    return folder_ / name;
  }
  fs::path adapter(const std::string& name, const std::string& base) {
    write(name + "/adapter_config.json",
          fmt::format(R"({{"peft_type": "LORA", "base_model_name_or_path": "{}"}})", base));
    return folder_ / name;
  }
  // Of a run that is not finished, which has this checkpoint.
  fs::path unfinished(const std::string& run, const std::string& checkpoint) {
    fs::create_directory_symlink(checkpoint, folder_ / run / "latest");
    return folder_ / run;
  }
  static std::string refused(const ModelWords& words) {
    return refusal<UserError>([&] { open_model_folder(words); });
  }
};

TEST_F(ModelFolderTest, WeightsAreAModel) {
  const auto folder = model("m");
  const auto opened = open_model_folder({.folder = folder, .adapter = "", .base = ""});
  EXPECT_EQ(opened.weights, folder);
  EXPECT_EQ(opened.adapter, "");
  EXPECT_EQ(opened.parts(), (std::vector<fs::path>{folder}));
  EXPECT_EQ(open_weights(folder).weights, folder);
}

TEST_F(ModelFolderTest, AnAdapterIsOneWithItsBase) {
  const auto base = model("base"), tuned = adapter("a", base.string());
  for (const auto& opened :
       {open_model_folder({tuned, "", ""}), open_model_folder({tuned, "", base}),
        open_model_folder({base, tuned, ""}), open_adapter(tuned, "")}) {
    EXPECT_EQ(opened.weights, base);
    EXPECT_EQ(opened.adapter, tuned);
    EXPECT_EQ(opened.parts(), (std::vector<fs::path>{tuned, base}));
  }
}

TEST_F(ModelFolderTest, TheAdaptersTextsAreNewer) {
  const auto base = model("base"), tuned = adapter("a", base.string());
  const auto opened = open_adapter(tuned, "");
  write("base/tokenizer.json", "");
  write("base/generation_config.json", "{}");
  EXPECT_EQ(opened.tokenizer_folder(), base);
  EXPECT_EQ(opened.folder_of("generation_config.json"), base);
  write("a/tokenizer.model", "");
  write("a/generation_config.json", "{}");
  EXPECT_EQ(opened.tokenizer_folder(), tuned) << "another form of it is still another tokenizer";
  EXPECT_EQ(opened.folder_of("generation_config.json"), tuned);
}

TEST_F(ModelFolderTest, OfARunThatIsNotFinishedTheLatestCheckpoint) {
  const auto checkpoint = model("run/checkpoint-3");
  const auto run = unfinished("run", "checkpoint-3");
  EXPECT_EQ(open_model_folder({run, "", ""}).weights, checkpoint);
  EXPECT_EQ(open_weights(run).weights, checkpoint);
  // Who trains names it.
  const auto why = refusal<UserError>([&] { read_hf_config(run); });
  EXPECT_EQ(why,
            fmt::format("'{}' holds a run that is not finished: name its latest checkpoint, {}",
                        run.string(), checkpoint.string()));
  const auto tuned = adapter("lora/checkpoint-7", checkpoint.string());
  EXPECT_EQ(open_adapter(unfinished("lora", "checkpoint-7"), "").adapter, tuned);
  EXPECT_EQ(open_model_folder({checkpoint, folder_ / "lora", ""}).adapter, tuned);
  model("run");
  EXPECT_EQ(open_model_folder({run, "", ""}).weights, run) << "now it is";
}

TEST_F(ModelFolderTest, WhatIsNoneIsToldInOneWay) {
  const auto base = model("base"), tuned = adapter("a", base.string());
  write("file", "");
  write("empty/README.md", "");
  const auto everywhere = [&](const std::string& name, const std::string& says) {
    const auto folder = folder_ / name;
    EXPECT_PRED2(contains, refused({folder, "", ""}), says);
    EXPECT_PRED2(contains, refusal<UserError>([&] { open_weights(folder); }), says);
    EXPECT_PRED2(contains, refusal<UserError>([&] { open_adapter(tuned, folder); }), says);
  };
  everywhere("nowhere", "nowhere' does not exist: name a folder with config.json and weights");
  everywhere("file", "file' is not a folder: name a folder with config.json and weights");
  everywhere("empty", "empty holds neither model.safetensors nor model.safetensors.index.json");
  const auto is_adapter = tuned.string() + " is an adapter, not a model: ";
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_weights(tuned); }), is_adapter);
  EXPECT_PRED2(contains, refusal<UserError>([&] { read_hf_config(tuned); }), is_adapter);
  EXPECT_PRED2(contains, refused({tuned, "", tuned}), is_adapter);
  fs::remove(base / "config.json");
  for (const auto& why :
       {refused({base, "", ""}), refusal<UserError>([&] { read_hf_config(base); })}) {
    EXPECT_PRED2(contains, why, "base' has no config.json");
  }
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_adapter(folder_ / "no", ""); }),
               "no' does not exist: name a folder with adapter_config.json");
}

TEST_F(ModelFolderTest, ABaseIsNamed) {
  const auto base = model("base");
  EXPECT_PRED2(contains, refused({adapter("a", ""), "", ""}), "names no base: give --base DIR");
  const auto of_hub = adapter("b", "nobody/nothing");
  EXPECT_PRED2(contains, refused({of_hub, "", ""}), "is an adapter of 'nobody/nothing'");
  EXPECT_PRED2(contains, refused({of_hub, "", ""}), "hf download nobody/nothing");
  EXPECT_EQ(refused({of_hub, "", base}), "");
  EXPECT_PRED2(contains, refused({base, "", base}), "is no adapter: --base has nothing to say");
  EXPECT_PRED2(contains, refused({base, of_hub, base}), "leave it out");
  EXPECT_PRED2(contains, refused({base, base, ""}), "is no adapter");
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_adapter(base, ""); }),
               "is no adapter but a model: name the folder with adapter_config.json");
}

TEST_F(ModelFolderTest, AnotherBaseIsRefused) {
  const auto base = model("base"), other = model("other", '2');
  const auto tuned = adapter("a", base.string());
  for (const auto& words : {ModelWords{tuned, "", other}, ModelWords{other, tuned, ""}}) {
    EXPECT_PRED2(contains, refused(words), "an adapter is worth nothing beside other weights");
  }
}

}  // namespace
}  // namespace skein::plan
