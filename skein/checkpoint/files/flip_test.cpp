// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A flipped bit or a missing end anywhere in a checkpoint is found, its file and tensor are named,
// and the checkpoint before it is used. SKEIN_FLIPS asks for more of them than the default.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/files/known_states.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/checkpoint/files/testing.h"
#include "skein/core/log_writer.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

class FlipTest : public TemporaryFolder {
 protected:
  FlipTest() {
    set_log_writer([this](std::string_view line) { warnings_ += line; });
    states_.save({.version = 1, .step = 1}, folder_);
    states_.save({.version = 2, .step = 2}, folder_);
    for (const auto& entry : fs::recursive_directory_iterator(newest_)) {
      if (entry.is_regular_file()) files_.push_back(entry.path());
    }
    std::sort(files_.begin(), files_.end());
  }
  ~FlipTest() override { set_log_writer({}); }

  // The tensor that has this byte of the file; empty where none has.
  std::string tensor_at(const fs::path& path, uint64_t byte) {
    if (path.extension() != ".safetensors") return "";
    const auto header = read_header(File::open_to_read(path), path.string());
    for (const auto& tensor : header.tensors) {
      if (byte >= header.data_begin + tensor.begin && byte < header.data_begin + tensor.end) {
        return tensor.name;
      }
    }
    return "";
  }

  void expect_found(const fs::path& path, const std::string& tensor, const std::string& what) {
    SCOPED_TRACE(what);
    const auto problems = verify(newest_);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_EQ(problems[0].file, path.lexically_relative(newest_));
    // Ranks that verify together find it too: a wrong size or manifest all of them, a wrong byte
    // one.
    size_t num_found = 0;
    for (int rank = 0; rank < 3; ++rank) num_found += verify(newest_, nullptr, {rank, 3}).size();
    const bool seen_by_all = problems[0].text.find("are not those that were") == std::string::npos;
    EXPECT_EQ(num_found, seen_by_all ? 3U : 1U) << problems[0].text;
    EXPECT_NE(problems[0].tensor.find(tensor), std::string::npos) << problems[0].tensor;
    warnings_.clear();
    const auto found = find_latest(folder_);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->path.filename(), "checkpoint-1");
    EXPECT_TRUE(has_version(found->path, "model", 1) && has_version(found->path, "optimizer", 1));
    for (const auto& word : {path.filename().string(), tensor}) {
      EXPECT_NE(warnings_.find(word), std::string::npos) << warnings_;
    }
  }

  KnownStates states_;
  std::string warnings_;
  fs::path newest_ = folder_ / "checkpoint-2";
  std::vector<fs::path> files_;
};

TEST_F(FlipTest, EveryOneIsFoundAndNamed) {
  const char* text = std::getenv("SKEIN_FLIPS");
  const int wanted = text == nullptr ? 100 : std::stoi(text);
  std::mt19937_64 random(5);
  int num_in_tensors = 0;
  for (int i = 0; i < wanted && !HasFailure(); ++i) {
    const auto& path = files_[random() % files_.size()];
    const auto whole = read_file(path);
    const size_t byte = random() % whole.size();
    const bool truncated = i % 4 == 3;
    const auto tensor = tensor_at(path, byte);
    num_in_tensors += !tensor.empty();
    auto broken = whole;
    if (truncated) {
      broken.resize(byte);
    } else {
      broken[byte] = static_cast<char>(broken[byte] ^ (1 << (random() % 8)));
    }
    write_file_atomically(path, broken);
    expect_found(path, tensor,
                 fmt::format("case {}: {} {} at byte {}", i, path.filename().string(),
                             truncated ? "truncated" : "flipped", byte));
    write_file_atomically(path, whole);
  }
  EXPECT_TRUE(verify(newest_).empty());
  EXPECT_GT(num_in_tensors, wanted / 10);
  fmt::print("{} bit flips and truncations, {} of them in tensors: all found and named\n", wanted,
             num_in_tensors);
}

}  // namespace
}  // namespace skein::checkpoint
