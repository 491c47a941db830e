// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Whatever instant a machine stops at, no row is accepted that was not written, and none is lost
// whose write_block() had returned.
//
// Starts of a collection with different numbers of ranks are recorded operation by operation; every
// prefix, with what was not synced kept, lost, torn or zeroed, is a disk to go on from.
// SKEIN_CRASH_STATES asks for more of them than the default.

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "skein/checkpoint/files/disk_trace.h"
#include "skein/core/error.h"
#include "skein/core/log_writer.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/merge.h"
#include "skein/gradient_features/files/row_reader.h"
#include "skein/gradient_features/files/shard.h"
#include "skein/gradient_features/files/testing.h"

namespace skein::gradient_features {
namespace {

using checkpoint::Fate;

CollectionFacts crash_facts() {
  auto facts = small_facts();
  facts.num_samples = 22;
  return facts;
}

const std::vector<SkippedSample>& crash_skipped() {
  static const std::vector<SkippedSample> skipped = {{6, SkipReason::kNotFinite}};
  return skipped;
}

// One rank writes blocks 0 and 1, then two ranks the others. `on_written` is told each of them.
void collect_in_two_starts(const fs::path& output,
                           const std::function<void(int64_t block)>& on_written = {}) {
  const auto facts = crash_facts();
  const auto write = [&](const fs::path& folder, int64_t block) {
    write_known(folder, facts, block, crash_skipped());
    if (on_written) on_written(block);
  };
  open_collection(output, facts);
  for (const int64_t block : {0, 1}) write(output, block);
  open_collection(output, facts);
  for (int64_t block = 2; block < facts.num_blocks(); ++block) {
    write(folder_of_rank(output, block % 2, 2), block);
  }
}

// How many operations had been done when write_block() returned: by block.
using Written = std::map<int64_t, size_t>;

std::set<int64_t> written_before(const Written& written, size_t length) {
  std::set<int64_t> blocks;
  for (const auto& [block, operations] : written) {
    if (operations <= length) blocks.insert(block);
  }
  return blocks;
}

std::vector<Fate> choose_fates(size_t length, size_t variant, std::mt19937_64& random) {
  if (variant % 3 == 0) return std::vector(length, Fate::kDone);  // the processes died
  if (variant % 3 == 1) return std::vector(length, Fate::kLost);  // the power went
  constexpr Fate kFates[] = {Fate::kDone, Fate::kDone, Fate::kLost, Fate::kHalf, Fate::kZero};
  std::vector<Fate> fates(length);
  for (auto& fate : fates) fate = kFates[random() % std::size(kFates)];
  return fates;
}

class GradientCrashTest : public testing::Test {
 protected:
  GradientCrashTest() {
    const bool has_memory = fs::is_directory("/dev/shm");
    folder_ = make_temporary_folder("crash", has_memory ? "/dev/shm" : fs::temp_directory_path());
    set_log_writer([](std::string_view) {});
  }
  ~GradientCrashTest() override {
    set_log_writer({});
    fs::remove_all(folder_);
  }

  // The next start: what it finds is right, and it ends with the undisturbed run's bytes.
  void check_state(const fs::path& output, const std::set<int64_t>& written_blocks) {
    const auto facts = crash_facts();
    open_collection(output, facts);
    const auto missing = missing_blocks(output, facts);
    for (const int64_t block : missing) EXPECT_FALSE(written_blocks.contains(block)) << block;
    for (const int64_t block : missing) {
      write_known(folder_of_rank(output, block % 3, 3), facts, block, crash_skipped());
    }
    for (const auto& entry : fs::recursive_directory_iterator(output)) {
      EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
    }
    merge_collection({.output = output});
    EXPECT_EQ(read_file(output / kMergedFile), merged_);
  }

  void expect_all_states_recover() {
    collect_in_two_starts(folder_ / "whole");
    merge_collection({.output = folder_ / "whole"});
    merged_ = read_file(folder_ / "whole" / kMergedFile);
    checkpoint::DiskRecorder recorder(folder_);
    Written written;
    {
      const ScopedFileSystem scope(recorder);
      make_directories(folder_ / "real");
      collect_in_two_starts(folder_ / "real/out",
                            [&](int64_t block) { written[block] = recorder.operations.size(); });
    }
    const auto& operations = recorder.operations;
    std::vector<size_t> lengths(operations.size());
    std::iota(lengths.begin(), lengths.end(), 1);
    const char* asked = std::getenv("SKEIN_CRASH_STATES");
    const size_t wanted = asked == nullptr ? 200 : std::stoul(asked);
    std::mt19937_64 random(13);
    std::shuffle(lengths.begin(), lengths.end(), random);
    std::set<std::string> seen;
    for (size_t i = 0; seen.size() < wanted && i < 20 * wanted; ++i) {
      const size_t place = i % lengths.size(), length = lengths[place];
      const auto is_certain = checkpoint::certain(operations, length);
      const auto fates = choose_fates(length, place + i / lengths.size(), random);
      const auto tree = checkpoint::disk_after(operations, fates, is_certain, random);
      std::string text;
      for (const auto& [path, content] : tree) text += path + content;
      if (!seen.insert(digest(text)).second) continue;
      const auto scratch = folder_ / "crashed";
      fs::create_directories(scratch);
      checkpoint::write_tree(tree, scratch);
      check_state(scratch / "real/out", written_before(written, length));
      fs::remove_all(scratch);
      ASSERT_FALSE(HasFailure()) << "after " << length << " operations, variant " << i;
    }
    fmt::print("{} operations, {} different disks after a crash, all recovered\n",
               operations.size(), seen.size());
  }

  fs::path folder_;
  std::string merged_;
};

TEST_F(GradientCrashTest, EveryStateGoesOnToTheSameRows) { expect_all_states_recover(); }

}  // namespace
}  // namespace skein::gradient_features
