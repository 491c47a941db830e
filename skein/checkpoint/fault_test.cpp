// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A disk that is full, broken or read-only costs a checkpoint, never the run and never an older
// checkpoint.

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/files/run_record.h"
#include "skein/checkpoint/files/testing.h"
#include "skein/checkpoint/reader.h"
#include "skein/checkpoint/store.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/log_writer.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

// Does everything for real but what `fails` refuses, and notes the order. Thread-safe.
class FaultyFileSystem final : public FileSystem {
 public:
  struct Call {
    std::string kind;  // "create", "write", "truncate", "allocate", "sync", "rename", "symlink",
                       // "mkdir", "rm"
    std::string name;  // last part of the path; of a rename the new one
    int opening = 0;   // which opening of a file
    bool failed = false;
  };
  // Gets the number of the call since the last reset; returns an errno, 0 for success.
  std::function<int(const Call&, int number)> fails = [](const auto&, int) { return 0; };
  std::optional<int64_t> bytes_left;  // then the disk is full

  std::vector<Call> calls;
  void reset() {
    calls.clear();
    bytes_left.reset();
    fails = [](const auto&, int) { return 0; };
  }

  int open(const fs::path& path, int flags) override {
    const std::lock_guard lock(mutex_);
    const bool exists = fs::exists(path);
    if ((flags & O_CREAT) != 0 && !exists && refuse({"create", path.filename()})) return -1;
    const int descriptor = FileSystem::open(path, flags);
    opened_[descriptor] = {path.filename(), ++num_openings_};
    return descriptor;
  }
  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override {
    const std::lock_guard lock(mutex_);
    if (refuse(call("write", descriptor))) return -1;
    if (bytes_left) {
      bytes = bytes.first(std::min<size_t>(bytes.size(), *bytes_left));
      *bytes_left -= static_cast<int64_t>(bytes.size());
      if (bytes.empty()) {
        errno = ENOSPC;
        return -1;
      }
    }
    return FileSystem::write(descriptor, bytes, offset);
  }
  int truncate(int descriptor, uint64_t size) override {
    const std::lock_guard lock(mutex_);
    return refuse(call("truncate", descriptor)) ? -1 : FileSystem::truncate(descriptor, size);
  }
  int allocate(int descriptor, uint64_t size) override {
    const std::lock_guard lock(mutex_);
    return refuse(call("allocate", descriptor)) ? -1 : FileSystem::allocate(descriptor, size);
  }
  int sync(int descriptor) override {
    const std::lock_guard lock(mutex_);
    return refuse(call("sync", descriptor)) ? -1 : 0;  // the disk itself is not on trial
  }
  int rename(const fs::path& from, const fs::path& to, unsigned flags) override {
    const std::lock_guard lock(mutex_);
    return refuse({"rename", to.filename()}) ? -1 : FileSystem::rename(from, to, flags);
  }
  int make_symlink(const fs::path& target, const fs::path& link) override {
    const std::lock_guard lock(mutex_);
    return refuse({"symlink", link.filename()}) ? -1 : FileSystem::make_symlink(target, link);
  }
  int make_directory(const fs::path& path) override {
    const std::lock_guard lock(mutex_);
    return refuse({"mkdir", path.filename()}) ? -1 : FileSystem::make_directory(path);
  }
  int remove(const fs::path& path) override {
    const std::lock_guard lock(mutex_);
    return refuse({"rm", path.filename()}) ? -1 : FileSystem::remove(path);
  }

 private:
  Call call(const std::string& kind, int descriptor) {
    const auto& [name, opening] = opened_[descriptor];
    return {kind, name, opening};
  }
  bool refuse(Call call) {
    const int error = fails(call, static_cast<int>(calls.size()));
    call.failed = error != 0;
    calls.push_back(std::move(call));
    errno = error;
    return error != 0;
  }

  std::mutex mutex_;
  std::map<int, std::pair<std::string, int>> opened_;  // by descriptor
  int num_openings_ = 0;
};

constexpr int kRanks = 2;
const std::vector<std::string> kNames = {"a", "b"};

class FaultTest : public TemporaryFolder {
 protected:
  FaultTest() {
    output_ = folder_ / "out";
    make_directories(output_);
    set_log_writer([this](std::string_view line) { log_ += line; });
  }
  ~FaultTest() override { set_log_writer({}); }

  // Each rank owns one half of every tensor.
  Contents contents_of_step(int rank, int64_t step) {
    Contents contents{.sets = {{}, {.stem = kOptimizerStem}},
                      .texts = {{"config.json", "{}"}, {"trainer_state.json", "{}"}}};
    for (auto& set : contents.sets) {
      for (const auto& name : kNames) {
        const auto own = set.is_optimizer() ? name + ".exp_avg" : name;
        set.tensors.push_back({own, DType::kF32, {20}});
        set.slices.push_back(
            {own,
             {20},
             at::kFloat,
             rank * 10,
             rank * 10 + 10,
             at::full({10}, static_cast<double>(step), at::TensorOptions(at::kFloat))});
      }
    }
    return contents;
  }

  // Saves, and returns whether all ranks agree that it was committed; they must agree.
  bool save(int64_t step) {
    std::vector<char> committed(kRanks);
    std::vector<std::thread> ranks;
    ++num_saves_;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        CheckpointStore store({.output = output_,
                               .rank = rank,
                               .size = kRanks,
                               .token = fmt::format("token{}", num_saves_),
                               .save_total_limit = 2,
                               .conditions = {}},
                              memory_);
        EXPECT_NO_THROW(store.save(step, contents_of_step(rank, step)));  // training goes on
        committed[rank] = store.finish();
      });
    }
    for (auto& rank : ranks) rank.join();
    EXPECT_EQ(committed[0], committed[1]);
    return committed[0];
  }

  void expect_newest(int64_t step) {
    const auto found = find_latest(output_);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->path.filename(), checkpoint_name(step));
    const auto sets = contents_of_step(0, -1).sets;
    read_checkpoint(found->path, sets);
    const auto wanted = at::full({10}, static_cast<double>(step), at::TensorOptions(at::kFloat));
    for (const auto& set : sets) {
      for (const auto& slice : set.slices) EXPECT_TRUE(at::equal(slice.data, wanted)) << slice.name;
    }
  }

  bool has_temporaries() {
    for (const auto& entry : fs::directory_iterator(output_)) {
      if (entry.path().filename().string().find(".tmp-") != std::string::npos) return true;
    }
    return false;
  }

  int count_in_log(const std::string& words) {
    int count = 0;
    for (auto at = log_.find(words); at != std::string::npos; at = log_.find(words, at + 1)) {
      ++count;
    }
    return count;
  }

  // Saves step 2 over step 1 with a fault, checks that nothing is lost, and saves step 3 without.
  void check_fault(const std::function<void(FaultyFileSystem&)>& arrange, bool may_leave = false) {
    fs::remove_all(output_);
    fs::create_directory(output_);
    {
      const ScopedFileSystem scope(faulty_);
      faulty_.reset();
      ASSERT_TRUE(save(0) && save(1));
      faulty_.reset();
      arrange(faulty_);
      log_.clear();
      const bool committed = save(2);
      EXPECT_EQ(count_in_log("checkpoint-2 was not saved"), committed ? 0 : 1) << log_;
      EXPECT_TRUE(may_leave || !has_temporaries());
      expect_newest(committed ? 2 : 1);
      committed_ = committed;
      calls_ = faulty_.calls;
      faulty_.reset();
      EXPECT_TRUE(save(3));
      expect_newest(3);
    }
  }

  FaultyFileSystem faulty_;
  MemoryStore memory_;
  fs::path output_;
  std::string log_;
  int num_saves_ = 0;
  bool committed_ = false;                     // by the last check_fault
  std::vector<FaultyFileSystem::Call> calls_;  // of its save
};

TEST_F(FaultTest, EveryOperationMayFailOnce) {
  check_fault([](auto&) {});
  ASSERT_TRUE(committed_);
  const int num_calls = static_cast<int>(calls_.size());
  ASSERT_GT(num_calls, 30);
  int num_failed_saves = 0;
  for (int i = 0; i < num_calls && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("call {}", i));
    // Removing may fail too, and then something stays until the next start.
    check_fault(
        [i](auto& faulty) {
          faulty.fails = [i](const auto& call, int number) {
            if (number != i) return 0;
            return call.kind == "write" || call.kind == "create" ? ENOSPC : EIO;
          };
        },
        /*may_leave=*/true);
    const auto failed = std::ranges::find_if(calls_, [](const auto& call) { return call.failed; });
    ASSERT_NE(failed, calls_.end());
    num_failed_saves += !committed_;
  }
  EXPECT_GT(num_failed_saves, 25);
  EXPECT_LT(num_failed_saves, num_calls);  // `latest` and the limit come after the commit
}

TEST_F(FaultTest, FailedSyncIsNeverACommitAndNeverTriedAgain) {
  const auto is_sync = [](const auto& call) { return call.kind == "sync"; };
  check_fault([](auto&) {});
  const auto num_syncs = std::ranges::count_if(calls_, is_sync);
  ASSERT_GT(num_syncs, 8);
  for (int64_t i = 0; i < num_syncs && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("sync {}", i));
    check_fault([i](auto& faulty) {
      faulty.fails = [left = i](const auto& call, int) mutable {
        return call.kind == "sync" && left-- == 0 ? EIO : 0;
      };
    });
    const auto failed = std::ranges::find_if(calls_, [](const auto& call) { return call.failed; });
    ASSERT_NE(failed, calls_.end());
    for (auto later = failed + 1; later != calls_.end(); ++later) {
      EXPECT_FALSE(is_sync(*later) && later->opening == failed->opening) << failed->name;
    }
    // The commit ends with the first sync of the output folder after the rename.
    const auto renamed = std::ranges::find_if(calls_, [](const auto& call) {
      return call.kind == "rename" && call.name == "checkpoint-2";
    });
    const auto synced = std::find_if(renamed, calls_.end(), is_sync);
    EXPECT_EQ(committed_, failed > synced) << failed->name;
  }
}

TEST_F(FaultTest, FullAtAnyByte) {
  int num_committed = 0;
  for (int64_t bytes = 0; num_committed < 2 && !HasFailure(); bytes += 61) {
    SCOPED_TRACE(fmt::format("full after {} bytes", bytes));
    check_fault([bytes](auto& faulty) { faulty.bytes_left = bytes; });
    num_committed += committed_;
    EXPECT_EQ(count_in_log("No space left on device"), committed_ ? 0 : 1) << log_;
    ASSERT_LT(bytes, 100'000);
  }
}

// Where nothing can be reserved, the ranks meet the full disk in the middle, and begin again.
TEST_F(FaultTest, TheFinalModelGetsTheRoomOfAnOlderCheckpoint) {
  const ScopedFileSystem scope(faulty_);
  ASSERT_TRUE(save(0) && save(1));
  RunRecord record;
  for (int i = 1; i <= num_saves_; ++i)
    record.starts.push_back({.token = fmt::format("token{}", i)});
  write_record(output_, record);
  faulty_.reset();
  faulty_.fails = [&](const auto& call, int) {
    if (call.kind == "allocate") return EOPNOTSUPP;
    const bool full = fs::exists(output_ / "checkpoint-0");
    return full && call.kind == "write" && call.name.starts_with("model") ? ENOSPC : 0;
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      CheckpointStore store({.output = output_,
                             .rank = rank,
                             .size = kRanks,
                             .token = "model",
                             .save_total_limit = 2},
                            memory_);
      EXPECT_NO_THROW(store.save_model(contents_of_step(rank, 2)));
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(count_in_log("the disk is full: giving up"), 1) << log_;
  EXPECT_TRUE(fs::exists(output_ / "model.safetensors"));
  EXPECT_FALSE(fs::exists(output_ / "checkpoint-0"));
  EXPECT_FALSE(has_temporaries());
  expect_newest(1);
}

TEST_F(FaultTest, ALostFolderIsAnErrorOfTheRankThatCommits) {
  ASSERT_TRUE(save(1));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      StoreOptions options{.output = output_, .rank = rank, .size = kRanks, .token = "lost"};
      if (rank == 0) options.fence = [] { throw CommError("taken over"); };
      CheckpointStore store(options, memory_);
      EXPECT_NO_THROW(store.save(2, contents_of_step(rank, 2)));
      if (rank == 0) {
        EXPECT_THROW(store.finish(), CommError);
        EXPECT_THROW(store.save_model(contents_of_step(rank, 2)), CommError);
      } else {
        EXPECT_FALSE(store.finish());
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_FALSE(has_temporaries());
  EXPECT_FALSE(fs::exists(output_ / "model.safetensors"));
  expect_newest(1);
}

TEST_F(FaultTest, ReadOnly) {
  check_fault([](auto& faulty) { faulty.fails = [](const auto&, int) { return EROFS; }; });
  EXPECT_FALSE(committed_);
  EXPECT_EQ(count_in_log("Read-only file system"), 1) << log_;
  EXPECT_EQ(count_in_log("\n"), 1) << log_;
}

}  // namespace
}  // namespace skein::checkpoint
