// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/files/testing.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

const std::vector<TensorEntry> kModel = {{"a.weight", DType::kU8, {100}},
                                         {"b.weight", DType::kU8, {37}}};
const std::vector<TensorEntry> kOptimizer = {{"a.weight.exp_avg", DType::kF32, {30}}};

// Records what is set, in order, and calls `on_set` before it.
class WatchedStore final : public Store {
 public:
  std::function<void(const std::string& key)> on_set = [](const auto&) {};

  void set(const std::string& key, const std::string& value) override {
    on_set(key);
    inner_.set(key, value);
    const std::lock_guard lock(mutex_);
    keys_.insert(key);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return inner_.try_get(key);
  }
  std::string get(const std::string& key, Duration timeout) override {
    return inner_.get(key, timeout);
  }
  int64_t add(const std::string& key, int64_t amount) override { return inner_.add(key, amount); }
  bool erase(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    keys_.erase(key);
    return inner_.erase(key);
  }
  std::set<std::string> keys() {
    const std::lock_guard lock(mutex_);
    return keys_;
  }
  size_t num_keys() {
    const std::lock_guard lock(mutex_);
    return keys_.size();
  }

 private:
  MemoryStore inner_;
  std::mutex mutex_;
  std::set<std::string> keys_;
};

thread_local int this_rank = 0;

class WriterTest : public TemporaryFolder {
 protected:
  // Each rank owns an equal part of every tensor.
  Job job_of(int rank, int size, char fill) {
    Job job;
    for (const auto& layout :
         {lay_out_files("model", model_), lay_out_files("optimizer", kOptimizer)}) {
      job.files.push_back(layout.files.at(0));
    }
    for (uint64_t i = 0; i < job.files.size(); ++i) {
      for (const auto& tensor : job.files[i].tensors) {
        const uint64_t first = job.files[i].header.size() + tensor.begin;
        const uint64_t bytes = tensor.end - tensor.begin;
        const uint64_t begin = bytes * rank / size, end = bytes * (rank + 1) / size;
        auto& memory = memory_[fmt::format("{} {}", rank, tensor.name)];
        memory.resize(end - begin);
        for (uint64_t i = begin; i < end; ++i) memory[i - begin] = static_cast<char>(fill + i * 7);
        job.pieces.push_back({i, first + begin, std::as_bytes(std::span(memory))});
      }
    }
    if (rank == 0) job.texts = {{"config.json", "{}"}, {"trainer_state.json", "{\"a\": 1}"}};
    if (rank == 0) job.texts.insert(more_texts_.begin(), more_texts_.end());
    return job;
  }

  ExchangeOptions exchange_options(int rank, int size) {
    return {.prefix = fmt::format("checkpoint/t/{}", save_),
            .rank = rank,
            .size = size,
            .node = nodes_.empty() ? "" : nodes_.at(static_cast<size_t>(rank)),
            .timeout = timeout_,
            .now = [this] { return now_(); }};
  }

  // Saves with `size` ranks, of which `absent` never does anything. Returns rank 0's failure.
  std::string save(int64_t step, int size, int absent = -1, bool holed = false) {
    ++save_;
    std::vector<std::string> failures(size);
    std::vector<std::thread> ranks;
    std::vector<Job> jobs;
    for (int rank = 0; rank < size; ++rank)
      jobs.push_back(job_of(rank, size, static_cast<char>(step)));
    if (holed) jobs.back().pieces.pop_back();
    for (int rank = 0; rank < size; ++rank) {
      if (rank == absent) continue;
      ranks.emplace_back([&, rank] {
        this_rank = rank;
        Exchange exchange(store_, exchange_options(rank, size), stop_);
        failures[rank] = write_checkpoint(jobs[rank], options(step), exchange);
      });
    }
    for (auto& rank : ranks) rank.join();
    for (int rank = 1; rank < size; ++rank) {
      if (rank == absent) continue;
      EXPECT_EQ(failures[rank].empty(), failures[0].empty()) << failures[rank];
    }
    return failures[0];
  }

  CommitOptions options(int64_t step) {
    return {.output = folder_,
            .step = step,
            .token = "t",
            .save_total_limit = limit_,
            .fence = fence_,
            .conditions = conditions_};
  }

  std::vector<std::string> listing() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  WatchedStore store_;
  std::atomic<bool> stop_ = false;
  std::chrono::milliseconds timeout_{10'000};
  std::function<Time()> now_ = Clock::now;
  RunConditions conditions_;
  std::function<void()> fence_;
  std::vector<std::string> nodes_;  // by rank; empty: one
  int64_t limit_ = 0;
  int save_ = 0;
  std::vector<TensorEntry> model_ = kModel;
  std::map<std::string, std::string> memory_;
  std::map<std::string, std::string> more_texts_;
};

using Names = std::vector<std::string>;

TEST_F(WriterTest, CommittedCheckpointVerifies) {
  for (const int size : {1, 2, 3}) {
    EXPECT_EQ(save(size, size), "");
    EXPECT_TRUE(verify(folder_ / checkpoint_name(size)).empty());
  }
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "checkpoint-3");
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "checkpoint-2", "checkpoint-3", "latest"}));
  const auto found = find_latest(folder_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->manifest.step, 3U);
}

TEST_F(WriterTest, TextsMayLieInAFolder) {
  more_texts_ = {{"templates/rag.jinja", "rag"}, {"templates/tools.jinja", "tools"}};
  EXPECT_EQ(save(1, 2), "");
  const auto path = folder_ / "checkpoint-1";
  EXPECT_TRUE(verify(path).empty());
  EXPECT_EQ(read_file(path / "templates/rag.jinja"), "rag");
  write_file_atomically(path / "templates/rag.jinja", "rat");
  ASSERT_EQ(verify(path).size(), 1U);
  EXPECT_EQ(verify(path)[0].file, "templates/rag.jinja");
  fs::remove_all(path / "templates");
  EXPECT_EQ(verify(path).size(), 2U);
  // Out of the checkpoint, it is not what was saved, whatever its bytes are.
  make_directories(folder_ / "elsewhere");
  write_file_atomically(folder_ / "elsewhere/rag.jinja", "rag");
  write_file_atomically(folder_ / "elsewhere/tools.jinja", "tools");
  fs::create_directory_symlink("../elsewhere", path / "templates");
  ASSERT_EQ(verify(path).size(), 2U);
  EXPECT_PRED2(contains, verify(path)[0].text, "leads out of its folder");
  limit_ = 1;
  EXPECT_EQ(save(2, 2), "");
  EXPECT_EQ(listing(), (Names{"checkpoint-2", "elsewhere", "latest"})) << "rotated as a whole";
}

TEST_F(WriterTest, AFinalModelsTextsMayLieInAFolderThatIsNoLink) {
  more_texts_ = {{"templates/rag.jinja", "rag"}};
  const auto save_model = [&] {
    Exchange exchange(store_, exchange_options(0, 1), stop_);
    ++save_;
    auto job = job_of(0, 1, 'x');
    return write_model(job, options(0), exchange);
  };
  EXPECT_EQ(save_model(), "");
  more_texts_ = {{"templates/rag.jinja", "new"}};
  EXPECT_EQ(save_model(), "");
  EXPECT_EQ(read_file(folder_ / "templates/rag.jinja"), "new");
  fs::rename(folder_ / "templates", folder_ / "elsewhere");
  fs::create_directory_symlink("elsewhere", folder_ / "templates");
  more_texts_ = {{"templates/rag.jinja", "through a link"}};
  EXPECT_PRED2(contains, save_model(), "templates is a link");
  EXPECT_EQ(read_file(folder_ / "elsewhere/rag.jinja"), "new");
}

TEST_F(WriterTest, FilesDoNotDependOnTheNumberOfRanks) {
  save(1, 1);
  fs::rename(folder_ / "checkpoint-1", folder_ / "one");
  save(1, 3);
  for (const auto name : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"}) {
    EXPECT_EQ(read_file(folder_ / "one" / name), read_file(folder_ / "checkpoint-1" / name));
  }
}

// Which pages of which tensor file has each node written?
class PageRecorder final : public FileSystem {
 public:
  explicit PageRecorder(std::vector<std::string> nodes) : nodes_(std::move(nodes)) {}
  std::map<std::string, std::map<uint64_t, std::set<std::string>>> pages;
  bool only_writes = true;

  int open(const fs::path& path, int flags) override {
    const int descriptor = FileSystem::open(path, flags);
    const std::lock_guard lock(mutex_);
    if (path.extension() == ".safetensors") {
      names_[descriptor] = path.filename();
      only_writes = only_writes && (flags & O_ACCMODE) == O_WRONLY;
    } else {
      names_.erase(descriptor);
    }
    return descriptor;
  }
  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override {
    const std::lock_guard lock(mutex_);
    if (const auto name = names_.find(descriptor); name != names_.end()) {
      for (uint64_t page = offset / kPageBytes; page * kPageBytes < offset + bytes.size(); ++page) {
        pages[name->second][page].insert(nodes_.at(static_cast<size_t>(this_rank)));
      }
    }
    return FileSystem::write(descriptor, bytes, offset);
  }

 private:
  const std::vector<std::string> nodes_;
  std::mutex mutex_;
  std::map<int, std::string> names_;  // by descriptor
};

TEST_F(WriterTest, NoPageIsWrittenByTwoNodes) {
  model_ = {{"a.weight", DType::kU8, {50'001}},
            {"b.weight", DType::kU8, {777}},
            {"c.weight", DType::kU8, {3}},
            {"d.weight", DType::kU8, {12'345}}};
  save(1, 1);
  fs::rename(folder_ / "checkpoint-1", folder_ / "one");
  nodes_ = {"x", "y", "x", "y", "z"};  // not in order, as some launchers place them
  PageRecorder recorder(nodes_);
  {
    const ScopedFileSystem scope(recorder);
    EXPECT_EQ(save(1, 5), "");
  }
  EXPECT_TRUE(recorder.only_writes);
  std::set<std::string> writers;
  for (const auto& [name, pages] : recorder.pages) {
    for (const auto& [page, nodes] : pages) {
      EXPECT_EQ(nodes.size(), 1U) << name << " page " << page;
      writers.insert(*nodes.begin());
    }
  }
  EXPECT_EQ(recorder.pages.size(), 2U);
  EXPECT_EQ(writers.size(), 3U);
  EXPECT_TRUE(verify(folder_ / "checkpoint-1").empty());
  for (const auto name : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(folder_ / "one" / name), read_file(folder_ / "checkpoint-1" / name));
  }
  for (const auto& key : store_.keys()) {
    EXPECT_EQ(key.find("pages/"), std::string::npos) << key;
    EXPECT_EQ(key.find("edges/"), std::string::npos) << key;
  }
}

TEST_F(WriterTest, ANodeThatCannotHandOverItsBytesEndsTheSave) {
  nodes_ = {"x", "y"};
  save(1, 2);
  timeout_ = std::chrono::hours(1);  // nobody waits for it
  store_.on_set = [](const std::string& key) {
    if (key.find("pages/") != std::string::npos) throw IoError("no way to the other node");
  };
  const auto failure = save(2, 2);
  EXPECT_NE(failure.find("no way to the other node"), std::string::npos) << failure;
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "latest"}));
}

TEST_F(WriterTest, CommitComesAfterEveryReportAndBeforeTheAnnouncement) {
  std::atomic<int> reports = 0;
  store_.on_set = [&](const std::string& key) {
    const bool committed = fs::exists(folder_ / "checkpoint-1");
    if (key.find("/done/") != std::string::npos) {
      EXPECT_FALSE(committed) << key;
      EXPECT_FALSE(fs::exists(folder_ / "checkpoint-1.tmp-t/manifest.json"));
      ++reports;
    }
    if (key.ends_with("/ready")) {
      EXPECT_TRUE(fs::exists(folder_ / "checkpoint-1.tmp-t/model.safetensors"));
    }
    if (key.ends_with("/result")) {
      EXPECT_TRUE(committed);
      EXPECT_EQ(reports, 2);
    }
  };
  EXPECT_EQ(save(1, 3), "");
}

TEST_F(WriterTest, EveryFlippedBitIsFoundAndNamed) {
  save(1, 2);
  save(2, 2);
  const auto broken = folder_ / "checkpoint-2";
  for (const auto& entry : fs::directory_iterator(broken)) {
    const auto name = entry.path().filename().string();
    const auto whole = read_file(entry.path());
    for (size_t byte = 0; byte < whole.size(); byte += 3) {
      auto flipped = whole;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << (byte % 8)));
      File::open_to_write(entry.path()).write_at(0, std::as_bytes(std::span(flipped)));
      const auto problems = verify(broken);
      ASSERT_EQ(problems.size(), 1U) << name << " byte " << byte;
      EXPECT_EQ(problems[0].file, name);
      if (name == "model.safetensors" && byte > whole.size() - 30) {
        EXPECT_EQ(problems[0].tensor, "b.weight");
      }
    }
    File::open_to_write(entry.path()).write_at(0, std::as_bytes(std::span(whole)));
  }
  EXPECT_TRUE(verify(broken).empty());
}

TEST_F(WriterTest, TruncatedAbsentAndForeignFilesAreFound) {
  save(1, 2);
  save(2, 2);
  const auto broken = folder_ / "checkpoint-2";
  for (const auto& entry : fs::directory_iterator(broken)) {
    const auto whole = read_file(entry.path());
    fs::resize_file(entry.path(), whole.size() - 1);
    const auto problems = verify(broken);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_EQ(problems[0].file, entry.path().filename());
    if (problems[0].file == "model.safetensors") {
      EXPECT_EQ(problems[0].tensor, "b.weight");
    }
    EXPECT_EQ(find_latest(folder_)->path.filename(), "checkpoint-1");
    fs::remove(entry.path());
    EXPECT_EQ(verify(broken).size(), 1U);
    write_file_atomically(entry.path(), whole + "x");
    EXPECT_EQ(verify(broken).size(), 1U);
    write_file_atomically(entry.path(), whole);
  }
  EXPECT_EQ(find_latest(folder_)->path.filename(), "checkpoint-2");
  write_file_atomically(broken / "model.safetensors.index.json", "{}");
  EXPECT_EQ(find_latest(folder_)->path.filename(), "checkpoint-1");
  fs::copy_file(folder_ / "checkpoint-1/model.safetensors", broken / "model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(verify(broken).size(), 5U);  // both ranks' parts of both tensors, and the index
}

TEST_F(WriterTest, CheckpointUnderAnotherStepsNameIsSkipped) {
  save(1, 1);
  fs::copy(folder_ / "checkpoint-1", folder_ / "checkpoint-9");
  EXPECT_EQ(find_latest(folder_)->path.filename(), "checkpoint-1");
}

TEST_F(WriterTest, LateRankAbandonsTheSave) {
  save(1, 2);
  timeout_ = std::chrono::milliseconds(50);
  const auto failure = save(2, 3, /*absent=*/2);
  EXPECT_NE(failure.find("rank 2"), std::string::npos) << failure;
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "latest"}));
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "checkpoint-1");
}

// A disk on which every piece takes most of the timeout, by the clock of the exchange.
class SlowDisk final : public PieceFlow {
 public:
  SlowDisk(std::atomic<int64_t>& clock, int64_t step) : clock_(clock), step_(step) {}
  void await(size_t) override { clock_ += step_; }
  void written(size_t) override {}

 private:
  std::atomic<int64_t>& clock_;
  int64_t step_;
};

TEST_F(WriterTest, ASaveThatGoesOnIsNotLate) {
  timeout_ = std::chrono::milliseconds(1000);
  std::atomic<int64_t> clock = 0;
  now_ = [&] { return Time(std::chrono::milliseconds(clock)); };
  auto slow = job_of(1, 2, 'x');
  SlowDisk disk(clock, 900);
  slow.flow = &disk;
  ASSERT_GE(slow.pieces.size(), 3U);  // 2.7 s of a timeout of 1 s
  std::thread rank([&] {
    Exchange exchange(store_, exchange_options(1, 2), stop_);
    EXPECT_EQ(write_checkpoint(slow, options(1), exchange), "");
  });
  Exchange exchange(store_, exchange_options(0, 2), stop_);
  EXPECT_EQ(write_checkpoint(job_of(0, 2, 'x'), options(1), exchange), "");
  rank.join();
  EXPECT_TRUE(verify(folder_ / "checkpoint-1").empty());
  EXPECT_GE(clock, 2700);
}

// Until then they wait for the save, and not in a collective for a rank whose disk is slow.
TEST_F(WriterTest, TheOthersWaitUntilOldCheckpointsAreGone) {
  struct Watched final : FileSystem {
    int remove(const fs::path& path) override {
      ++removals;
      announced += store->try_get("checkpoint/t/2/result").has_value() ? 1 : 0;
      return FileSystem::remove(path);
    }
    skein::Store* store = nullptr;
    std::atomic<int> removals = 0, announced = 0;
  } watched;
  watched.store = &store_;
  limit_ = 1;
  EXPECT_EQ(save(1, 2), "");
  const ScopedFileSystem scope(watched);
  EXPECT_EQ(save(2, 2), "");
  EXPECT_EQ(listing(), (Names{"checkpoint-2", "latest"}));
  EXPECT_GT(watched.removals, 0);
  EXPECT_EQ(watched.announced, 0);
}

// Before its n-th call that changes a name, something takes the folder's: as long as a save has
// calls. No fence is asked, as for a process that was frozen behind the last one.
TEST_F(WriterTest, AFolderThatTookTheNameIsLeftAlone) {
  struct Swapping final : FileSystem {
    int rename(const fs::path& from, const fs::path& to, unsigned flags) override {
      swap();
      return FileSystem::rename(from, to, flags);
    }
    int make_symlink(const fs::path& target, const fs::path& link) override {
      swap();
      return FileSystem::make_symlink(target, link);
    }
    int make_directory(const fs::path& path) override {
      swap();
      return FileSystem::make_directory(path);
    }
    int remove(const fs::path& path) override {
      swap();
      return FileSystem::remove(path);
    }
    void swap() {
      if (left-- != 0) return;
      fs::rename(output, output.native() + "-old");
      fs::create_directories(output / "checkpoint-2");
      fs::create_directory_symlink("of-another", output / "latest");
    }
    fs::path output;
    int left = 0;
  };
  limit_ = 1;
  const auto top = folder_;
  int calls = 0;
  for (bool swapped = true; swapped; ++calls) {
    folder_ = top / std::to_string(calls);
    fs::create_directory(folder_);
    ASSERT_EQ(save(1, 1), "");
    const HeldFolder held(folder_);
    Swapping swapping;
    swapping.output = folder_;
    swapping.left = calls;
    {
      const ScopedFileSystem scope(swapping);
      save(2, 1);
    }
    swapped = swapping.left < 0;
    if (!swapped) break;
    EXPECT_EQ(listing(), (Names{"checkpoint-2", "latest"})) << calls;
    EXPECT_TRUE(fs::is_empty(folder_ / "checkpoint-2")) << calls;
    EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "of-another") << calls;
  }
  EXPECT_GT(calls, 5);
  folder_ = top;
}

TEST_F(WriterTest, ASaveThatDoesNotRotateLeavesItToTheNext) {
  limit_ = 1;
  for (const int step : {1, 2, 3}) {
    auto last = options(step);
    last.rotates = step != 2;
    Exchange exchange(store_, exchange_options(0, 1), stop_);
    EXPECT_EQ(write_checkpoint(job_of(0, 1, 'x'), last, exchange), "");
    ++save_;
    if (step == 2) {
      EXPECT_EQ(listing(), (Names{"checkpoint-1", "checkpoint-2", "latest"}));
    }
  }
  EXPECT_EQ(listing(), (Names{"checkpoint-3", "latest"}));
}

TEST_F(WriterTest, NoTimePassesWhileTheRunIsPaused) {
  const auto options_of = [](int rank) {
    return ExchangeOptions{
        .prefix = "p", .rank = rank, .size = 2, .timeout = std::chrono::milliseconds(50)};
  };
  Clock::freeze();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    Exchange(store_, options_of(0), stop_).announce_ready();
  });
  EXPECT_NO_THROW(Exchange(store_, options_of(1), stop_).await_ready());
  other.join();
  Clock::thaw();
}

TEST_F(WriterTest, AManifestThatNoReaderTakesIsNotCommitted) {
  save(1, 1);
  conditions_.device = std::string(manifest_limit(0) + 1, 'x');
  const auto failure = save(2, 1);
  EXPECT_NE(failure.find("manifest.json would have"), std::string::npos) << failure;
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "latest"}));
}

TEST_F(WriterTest, AManifestMayGrowWithItsFiles) {
  make_directories(folder_ / "checkpoint-1");
  const auto resize = [&](const char* name, uint64_t bytes) {
    File::open_or_create(folder_ / "checkpoint-1" / name).resize(bytes);  // holes
  };
  resize("manifest.json", manifest_limit(0) + 1);
  EXPECT_EQ(verify(folder_ / "checkpoint-1").at(0).text, "it is too large");
  resize("model.safetensors", 4096);
  EXPECT_NE(verify(folder_ / "checkpoint-1").at(0).text, "it is too large");
}

TEST_F(WriterTest, BytesThatNobodyWroteAreNotCommitted) {
  const auto failure = save(1, 2, -1, /*holed=*/true);
  EXPECT_NE(failure.find("optimizer.safetensors"), std::string::npos) << failure;
  EXPECT_TRUE(listing().empty());
}

TEST_F(WriterTest, UnwritableFolderAbandonsTheSave) {
  save(1, 2);
  // A file in the way: unlike permissions it stops root too.
  write_file_atomically(folder_ / "checkpoint-2.tmp-t", "in the way");
  EXPECT_NE(save(2, 2), "");
  EXPECT_TRUE(find_latest(folder_).has_value());
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "latest"}));
  EXPECT_EQ(save(2, 2), "");
}

TEST_F(WriterTest, LimitKeepsTheNewestAndTheOneJustWritten) {
  limit_ = 2;
  for (const int step : {1, 2, 3}) save(step, 1);
  EXPECT_EQ(listing(), (Names{"checkpoint-2", "checkpoint-3", "latest"}));
  limit_ = 1;
  save(1, 1);  // continued from an older one: newer folders do not push it out
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "latest"}));
}

TEST_F(WriterTest, AFolderThatIsAnotherRunsByNowGetsNothing) {
  limit_ = 1;
  save(1, 2);
  int asked = 0;
  fence_ = [&] {
    ++asked;
    EXPECT_TRUE(fs::exists(folder_ /
                           "checkpoint-2.tmp-t/manifest.json"));  // nothing but the name is missing
    EXPECT_FALSE(fs::exists(folder_ / "checkpoint-2"));
    throw CommError("taken over");
  };
  EXPECT_EQ(save(2, 2), "taken over");
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "latest"}));
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "checkpoint-1");

  write("trainer_state.json", "theirs");
  fence_ = [] { throw CommError("taken over"); };
  Exchange exchange(store_, {.prefix = "model", .now = now_}, stop_);
  EXPECT_EQ(write_model(job_of(0, 1, 'x'), options(-1), exchange), "taken over");
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "latest", "trainer_state.json"}));
}

// Frozen right behind the commit, and awake when the folder's name is another run's.
TEST_F(WriterTest, ATakeoverBehindTheCommitStopsWhatFollows) {
  limit_ = 1;
  save(1, 1);
  fence_ = [&] {
    if (fs::exists(folder_ / "checkpoint-2")) throw CommError("taken over");
  };
  EXPECT_EQ(save(2, 1), "");
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "checkpoint-2", "latest"})) << "nothing is rotated";
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "checkpoint-1");
}

// Full while checkpoint-1 is there: at the reservation, or (where a file system has none) at a
// rank's write.
class FullDisk final : public FileSystem {
 public:
  explicit FullDisk(fs::path output) : first_(std::move(output) / "checkpoint-1") {}
  bool can_reserve = true;
  bool at_texts = false;

  int allocate(int descriptor, uint64_t size) override {
    if (can_reserve) return is_full() ? -1 : FileSystem::allocate(descriptor, size);
    errno = EOPNOTSUPP;
    return -1;
  }
  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override {
    const bool is_text = offset == 0 && bytes.size() < 20;
    const bool concerned = at_texts ? is_text : !can_reserve && offset > 0;
    return concerned && is_full() ? -1 : FileSystem::write(descriptor, bytes, offset);
  }

 private:
  bool is_full() const {
    const bool full = fs::exists(first_);
    errno = ENOSPC;
    return full;
  }
  fs::path first_;
};

TEST_F(WriterTest, AFullDiskTakesTheOldestCheckpointFirst) {
  for (const bool at_texts : {false, true}) {
    limit_ = 0;
    for (const int step : {1, 2}) save(step, 2);
    FullDisk disk(folder_);
    disk.can_reserve = !at_texts;
    disk.at_texts = at_texts;
    const ScopedFileSystem scope(disk);
    EXPECT_NE(save(3, 2), "");  // without save_total_limit nothing is given up
    EXPECT_EQ(listing(), (Names{"checkpoint-1", "checkpoint-2", "latest"}));
    limit_ = 5;
    testing::internal::CaptureStderr();
    EXPECT_EQ(save(3, 2), "");
    const auto told = testing::internal::GetCapturedStderr();
    EXPECT_NE(told.find("the disk is full: giving up"), std::string::npos) << told;
    EXPECT_EQ(listing(), (Names{"checkpoint-2", "checkpoint-3", "latest"}));
    EXPECT_TRUE(verify(folder_ / "checkpoint-3").empty());
    fs::remove_all(folder_ / "checkpoint-3");
  }
}

TEST_F(WriterTest, AFullDiskNeverTakesTheNewestVerifiedOrAProtectedCheckpoint) {
  for (const int step : {1, 2, 3}) save(step, 1);
  write_file_atomically(folder_ / "checkpoint-3/model.safetensors", "broken");
  EXPECT_TRUE(give_up_oldest(folder_, {.token = "t"}));
  EXPECT_FALSE(give_up_oldest(folder_, {.token = "t"}));  // 2 is the newest that verifies
  EXPECT_EQ(listing(), (Names{"checkpoint-2", "checkpoint-3", "latest"}));
  save(4, 1);
  EXPECT_TRUE(give_up_oldest(folder_, {.token = "t", .keep_steps = {2}}));
  EXPECT_EQ(listing(), (Names{"checkpoint-2", "checkpoint-4", "latest"}));
  EXPECT_TRUE(give_up_oldest(folder_, {.token = "t"}));
  EXPECT_EQ(listing(), (Names{"checkpoint-4", "latest"}));
}

TEST_F(WriterTest, ADiskThatFillsInTheMiddleLosesTheSaveButNotTheNext) {
  limit_ = 5;
  for (const int step : {1, 2}) save(step, 2);
  FullDisk disk(folder_);
  disk.can_reserve = false;
  const ScopedFileSystem scope(disk);
  EXPECT_NE(save(3, 2), "");
  EXPECT_EQ(listing(), (Names{"checkpoint-2", "latest"}));
  EXPECT_EQ(save(4, 2), "");
  EXPECT_EQ(listing(), (Names{"checkpoint-2", "checkpoint-4", "latest"}));
}

TEST_F(WriterTest, SameStepIsReplaced) {
  save(1, 1);
  write_file_atomically(folder_ / "checkpoint-1/model.safetensors", "broken");
  save(1, 2);
  EXPECT_TRUE(verify(folder_ / "checkpoint-1").empty());
  EXPECT_EQ(listing(), (Names{"checkpoint-1", "latest"}));
}

TEST_F(WriterTest, ManyRangesTravelInSeveralParts) {
  std::vector<WrittenRange> ranges;
  for (uint64_t i = 0; i < 30'000; ++i) ranges.push_back({1, i, i + 1, std::string(32, 'a')});
  Exchange sender(store_, exchange_options(1, 2), stop_);
  Exchange receiver(store_, exchange_options(0, 2), stop_);
  sender.report(ranges);
  EXPECT_GT(store_.num_keys(), 2U);
  const auto received = receiver.collect();
  ASSERT_EQ(received.size(), ranges.size());
  EXPECT_EQ(received.back().end, ranges.back().end);
  EXPECT_EQ(store_.num_keys(), 0U);
}

}  // namespace
}  // namespace skein::checkpoint
