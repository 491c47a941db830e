// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Whatever instant a machine stops at, the newest checkpoint that was committed loads, with exactly
// the bytes that were saved.
//
// Saves by several ranks are recorded operation by operation; every prefix of the record, with what
// was not synced kept, lost, torn or zeroed, is a disk to recover from. SKEIN_CRASH_STATES asks for
// more of them than the default.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/files/disk_trace.h"
#include "skein/checkpoint/files/known_states.h"
#include "skein/checkpoint/files/testing.h"
#include "skein/core/hash.h"
#include "skein/core/log_writer.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

// In order: checkpoints and final models.
const std::vector<KnownSave> kSaves = {
    {.version = 1, .step = 5},
    {.version = 1},
    {.version = 2, .step = 10, .limit = 2},
    {.version = 3, .step = 15, .limit = 2, .shard_bytes = kDefaultShardBytes},  // removes 5
    {.version = 3, .shard_bytes = kDefaultShardBytes},
    {.version = 4, .step = 15, .limit = 2},  // replaces
    {.version = 5, .step = 20, .limit = 1},  // removes 10 and 15
    {.version = 5}};

// When did a version get its name, and when was that certain?
struct Commit {
  int64_t step = 0;
  size_t done = 0;
  size_t certain = 0;
};

class CrashTest : public testing::Test {
 protected:
  CrashTest() {
    const bool has_memory = fs::is_directory("/dev/shm");
    folder_ = make_temporary_folder("crash", has_memory ? "/dev/shm" : fs::temp_directory_path());
    set_log_writer([](std::string_view) {});  // thousands of skipped checkpoints are named
  }
  ~CrashTest() override {
    set_log_writer({});
    fs::remove_all(folder_);
  }

  void record(DiskRecorder& recorder) {
    const ScopedFileSystem scope(recorder);
    make_directories(folder_ / "real/out");
    for (const auto& save : kSaves) {
      EXPECT_EQ(states_.save(save, folder_ / "real/out"), std::vector<std::string>(kNumWriters));
    }
  }

  fs::path folder_;
  KnownStates states_;
};

std::vector<Commit> commits_of(const std::vector<DiskOperation>& operations) {
  std::vector<Commit> commits;
  int output = -1;
  for (size_t i = 0; i < operations.size(); ++i) {
    const auto& operation = operations[i];
    for (const auto& save : kSaves) {
      const bool moves = operation.kind == DiskOperation::Kind::kRename ||
                         operation.kind == DiskOperation::Kind::kExchange;
      if (save.step == 0 || !moves || operation.other != checkpoint_name(save.step)) continue;
      commits.push_back({save.step, i, operations.size()});
      output = operation.folder;
      break;
    }
    const bool syncs = operation.kind == DiskOperation::Kind::kSyncFolder;
    if (syncs && operation.folder == output) {
      commits.back().certain = std::min(commits.back().certain, i);
    }
  }
  return commits;
}

// One disk after a crash.
class CrashState {
 public:
  CrashState(fs::path output, const std::vector<Commit>& commits, size_t length)
      : output_(std::move(output)) {
    for (const auto& commit : commits) {
      newest_ += commit.done < length;
      oldest_ += commit.certain < length;
    }
    for (const auto& commit : commits) steps_.push_back(commit.step);
  }

  // On a file system that cannot exchange, the newest may be missing while it is being replaced.
  void allow_missing_newest() { oldest_ -= oldest_ == 3 && newest_ < 5; }

  void check() {
    const auto found = find_latest(output_);
    check_found(found);
    check_model();
    sweep_temporaries(output_);
    const auto again = find_latest(output_);
    EXPECT_EQ(found ? found->path : "", again ? again->path : "");
    for (const auto& entry : fs::recursive_directory_iterator(output_)) {
      EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
    }
  }

 private:
  void check_found(const std::optional<FoundCheckpoint>& found) const {
    if (!found) {
      EXPECT_EQ(oldest_, 0) << "no checkpoint is left";
      return;
    }
    for (int version = std::max(oldest_, 1); version <= newest_; ++version) {
      if (steps_.at(version - 1) != static_cast<int64_t>(found->manifest.step)) continue;
      if (has_version(found->path, "model", version) &&
          has_version(found->path, "optimizer", version) &&
          read_file(found->path / "trainer_state.json") == state_text(version)) {
        return;
      }
    }
    ADD_FAILURE() << found->path << " is none of versions " << oldest_ << " to " << newest_;
  }

  // A trainer_state.json beside the model says that the model is whole.
  void check_model() const {
    if (!fs::exists(output_ / "trainer_state.json")) return;
    const auto state = read_file(output_ / "trainer_state.json");
    for (const int version : {1, 3, 5}) {
      if (state != state_text(version)) continue;
      EXPECT_TRUE(has_version(output_, "model", version)) << version;
      EXPECT_EQ(read_file(output_ / "config.json"), "{}");
      return;
    }
    ADD_FAILURE() << "trainer_state.json: " << state;
  }

  fs::path output_;
  std::vector<int64_t> steps_;  // of the versions
  int oldest_ = 0, newest_ = 0;
};

Fate random_fate(std::mt19937_64& random, uint64_t percent_done) {
  if (random() % 100 < percent_done) return Fate::kDone;
  constexpr Fate kOthers[] = {Fate::kLost, Fate::kLost, Fate::kHalf, Fate::kZero};
  return kOthers[random() % 4];
}

// Fates of the uncertain operations of a prefix.
std::vector<Fate> choose_fates(size_t length, size_t variant, std::mt19937_64& random) {
  if (variant % 3 == 0) return std::vector(length, Fate::kDone);  // the processes died
  if (variant % 3 == 1) return std::vector(length, Fate::kLost);  // the power went
  std::vector<Fate> fates(length);
  constexpr uint64_t kPercent[] = {10, 50, 90};
  const auto percent = kPercent[random() % 3];
  for (auto& fate : fates) fate = random_fate(random, percent);
  return fates;
}

std::string digest_of(const DiskTree& tree) {
  std::string text;
  for (const auto& [path, content] : tree) {
    text += fmt::format("{} {} {}", path, content.size(), content);
  }
  return digest(std::as_bytes(std::span(text)));
}

std::string story(const std::vector<DiskOperation>& operations, const std::vector<Fate>& fates,
                  const std::vector<bool>& is_certain) {
  constexpr const char* kFates[] = {"", "LOST ", "HALF ", "ZERO "};
  std::string text;
  for (size_t i = 0; i < is_certain.size(); ++i) {
    const auto* fate = is_certain[i] ? "" : kFates[static_cast<int>(fates[i])];
    text += fmt::format("{:4} {}{}\n", i, fate, operations[i].text());
  }
  return text;
}

size_t wanted_states(size_t usual) {
  const char* text = std::getenv("SKEIN_CRASH_STATES");
  return text == nullptr ? usual : std::stoul(text);
}

// The run goes on and saves again.
void expect_next_save(KnownStates& states, const fs::path& output) {
  const KnownSave next{.version = 6, .step = 25, .limit = 2};
  EXPECT_EQ(states.save(next, output), std::vector<std::string>(kNumWriters));
  const auto found = find_latest(output);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->path.filename(), "checkpoint-25");
  EXPECT_TRUE(has_version(found->path, "model", 6) && has_version(found->path, "optimizer", 6));
}

// Looks at prefixes in random order, each in three ways and then again, until so many different
// disks were seen.
void check_states(const DiskRecorder& recorder, const fs::path& scratch, KnownStates& states) {
  const size_t wanted = wanted_states(300);
  const auto& operations = recorder.operations;
  const auto commits = commits_of(operations);
  ASSERT_EQ(commits.size(), 5U);
  std::set<std::string> seen;
  std::mt19937_64 random(20'261'115);
  std::vector<size_t> lengths(operations.size());
  std::iota(lengths.begin(), lengths.end(), 1);
  std::shuffle(lengths.begin(), lengths.end(), random);
  for (size_t i = 0; seen.size() < wanted; ++i) {
    const size_t place = i % lengths.size(), length = lengths[place];
    const size_t variant = place + i / lengths.size();  // another one each time around
    const auto is_certain = certain(operations, length);
    const auto fates = choose_fates(length, variant, random);
    const auto tree = disk_after(operations, fates, is_certain, random);
    if (!seen.insert(digest_of(tree)).second) continue;
    fs::create_directories(scratch);
    write_tree(tree, scratch);
    CrashState state(scratch / "real/out", commits, length);
    if (!recorder.can_exchange) state.allow_missing_newest();
    if (fs::exists(scratch / "real/out")) {
      state.check();
      if (seen.size() % 100 == 0) expect_next_save(states, scratch / "real/out");
    } else {
      EXPECT_GT(commits[0].certain, length);
    }
    fs::remove_all(scratch);
    ASSERT_FALSE(testing::Test::HasFailure()) << story(operations, fates, is_certain);
  }
  testing::Test::RecordProperty("operations", static_cast<int>(operations.size()));
  testing::Test::RecordProperty("states", static_cast<int>(seen.size()));
  fmt::print("{} operations, {} different disks after a crash, all recovered\n", operations.size(),
             seen.size());
}

TEST_F(CrashTest, EveryStateLoadsTheNewestCommittedCheckpoint) {
  DiskRecorder recorder(folder_);
  record(recorder);
  check_states(recorder, folder_ / "crashed", states_);
}

TEST_F(CrashTest, WithoutExchangeToo) {
  DiskRecorder recorder(folder_);
  recorder.can_exchange = false;
  record(recorder);
  check_states(recorder, folder_ / "crashed", states_);
}

}  // namespace
}  // namespace skein::checkpoint
