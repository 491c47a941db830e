// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Every input that was found or made by hand goes through its target again. A crash fails the
// program.
#include <gtest/gtest.h>

#include "skein/core/file.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

void replay(const char* name, void (*target)(std::string_view)) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SKEIN_FUZZ_CORPUS) / name)) {
    SCOPED_TRACE(entry.path().string());
    const auto bytes = read_file(entry.path());
    EXPECT_NO_THROW(target(bytes)) << entry.path();
    // Every prefix too: cheap, and what a torn write leaves.
    for (size_t length = 0; length < bytes.size(); length += 1 + bytes.size() / 200) {
      EXPECT_NO_THROW(target(std::string_view(bytes).substr(0, length))) << entry.path();
    }
    ++files;
  }
  EXPECT_GT(files, 0) << name;
}

TEST(Fuzz, SafetensorsCorpus) { replay("safetensors", safetensors); }
TEST(Fuzz, ManifestCorpus) { replay("manifest", manifest); }
TEST(Fuzz, RunRecordCorpus) { replay("run_record", run_record); }
TEST(Fuzz, ConfigCorpus) { replay("config", config); }
TEST(Fuzz, FramesCorpus) { replay("frames", frames); }
TEST(Fuzz, MessagesCorpus) { replay("messages", messages); }
TEST(Fuzz, JsonCorpus) { replay("json", json); }
TEST(Fuzz, JsonlCorpus) { replay("jsonl", jsonl); }
TEST(Fuzz, RowsCorpus) { replay("rows", rows); }
TEST(Fuzz, ChatTemplateCorpus) { replay("chat_template", chat_template); }
TEST(Fuzz, TokenizerCorpus) { replay("tokenizer", tokenizer); }
TEST(Fuzz, ModelConfigCorpus) { replay("model_config", model_config); }
TEST(Fuzz, AdapterConfigCorpus) { replay("adapter_config", adapter_config); }
TEST(Fuzz, HostfileCorpus) { replay("hostfile", hostfile); }
TEST(Fuzz, GradientsCorpus) { replay("gradients", gradients); }
TEST(Fuzz, RewardsCorpus) { replay("rewards", rewards); }

}  // namespace
}  // namespace skein::fuzz
