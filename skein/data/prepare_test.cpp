// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/prepare.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/file_index.h"
#include "skein/data/file_lock.h"
#include "skein/data/test_files.h"
#include "skein/data/token_cache.h"

namespace skein::data {
namespace {

using Ids = std::vector<uint32_t>;

class Prepare : public TemporaryFolder {
 protected:
  Prepare() { data_.data_cache_dir = (folder_ / "cache").string(); }

  // As if written long ago.
  fs::path write_old(const std::string& name, std::string_view content) const {
    const auto path = write(name, content);
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    return path;
  }
  PreparedData run(Split split = Split::kTrain) const {
    return prepare(data_, text::ByteCodec(), split);
  }
  static Ids ids(const PreparedData& data) { return data.tokens.read(0, data.tokens.size()); }
  // Files of the cache whose name ends in `ending`.
  int64_t count_files(std::string_view ending) const {
    int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(data_.data_cache_dir)) {
      if (entry.path().filename().string().ends_with(ending)) ++count;
    }
    return count;
  }

  config::DataConfig data_;
};

TEST_F(Prepare, TextIsEncodedOnceAndReused) {
  data_.train_file = write_old("a.txt", "AB").string() + "," +
                     write_old("b.jsonl", "{\"text\": \"C\"}\n").string();
  const auto first = run();
  EXPECT_FALSE(first.was_reused);
  EXPECT_EQ(ids(first), (Ids{65, 66, 256, 67, 256}));
  EXPECT_EQ(first.documents, 2u);
  EXPECT_EQ(first.largest_token, 256u);
  EXPECT_EQ(first.prepared_file.stem(), first.digest);
  EXPECT_EQ(fs::file_size(first.prepared_file), 128u + 5 * 2);
  const auto again = run();
  EXPECT_TRUE(again.was_reused);
  EXPECT_EQ(again.digest, first.digest);
  EXPECT_EQ(ids(again), ids(first));
  data_.overwrite_cache = true;
  EXPECT_FALSE(run().was_reused);
  EXPECT_EQ(count_files(".tmp"), 0);
}

TEST_F(Prepare, OtherContentAndOtherEncodersHaveOtherNames) {
  data_.train_file = write_old("a.txt", "AB").string();
  const auto first = run();
  write("a.txt", "AC");
  const auto changed = run();
  EXPECT_NE(changed.digest, first.digest);
  EXPECT_EQ(ids(changed), (Ids{65, 67, 256}));
  data_.train_file = write_old("copy.txt", "AB").string();
  EXPECT_TRUE(run().was_reused) << "the path is not part of the name";

  class Other final : public text::TextCodec {
   public:
    void encode(std::string_view text, Ids& out) const override {
      out.insert(out.end(), text.size(), 70000);
    }
    Ids encode_prompt(std::string_view) const override { return {}; }
    std::string bytes_of(uint32_t) const override { return {}; }
    std::string decode(std::span<const uint32_t>) const override { return {}; }
    std::optional<uint32_t> end() const override { return 1; }
    int64_t vocab_size() const override { return 70001; }
    std::string name() const override { return "other"; }
    std::string identity() const override { return "other"; }
    text::Cuts cuts() const override { return text::Cuts::kNowhere; }
  };
  const auto other = prepare(data_, Other(), Split::kTrain);
  EXPECT_NE(other.digest, first.digest);
  EXPECT_EQ(ids(other), (Ids{70000, 70000, 1}));
}

TEST_F(Prepare, TokenFilesAreUsedWhereTheyAre) {
  data_.train_file = write_old("a.bin", bytes_of_words<uint16_t>({7, 9})).string() + "," +
                     write_old("b.bin", bytes_of_words<uint16_t>({8, 3})).string();
  const auto data = run();
  EXPECT_EQ(ids(data), (Ids{7, 9, 8, 3}));
  EXPECT_EQ(data.largest_token, 9u);
  EXPECT_EQ(data.prepared_file, "");
  EXPECT_EQ(run().largest_token, 9u) << "now from the index";
  EXPECT_EQ(run().digest, data.digest);
  EXPECT_EQ(count_files(".tokens"), 0);
}

TEST_F(Prepare, TokenFilesNeedNoWritableCache) {
  data_.train_file = write_old("a.bin", "abcd").string();
  data_.data_cache_dir = (folder_ / "a.bin" / "cache").string();
  EXPECT_EQ(run().tokens.size(), 2);
}

// A changed byte under an unchanged outside shows that the content was not read again.
TEST_F(Prepare, UnchangedFilesAreNotReadAgain) {
  const auto path = write_old("a.txt", "AB");
  data_.train_file = path.string();
  const auto first = run();
  // A lie that only who reads the file again would notice. It is told in every line: the index
  // holds the prepared file too, in an order that follows the folder's name.
  const auto index = fs::path(data_.data_cache_dir) / "files.index";
  auto text = read_file(index);
  for (auto end = text.find('\n', text.find('\n') + 1); end != std::string::npos;
       end = text.find('\n', end + 1)) {
    auto& character = text[text.rfind(' ', text.rfind(' ', end) - 1) + 1];  // of the digest
    character = character == 'a' ? 'b' : 'a';
  }
  write_file_atomically(index, text);
  EXPECT_NE(run().digest, first.digest);
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_EQ(run().digest, first.digest);
}

TEST_F(Prepare, FilesWrittenJustNowAreReadAgain) {
  const auto path = write("a.txt", "AB");
  data_.train_file = path.string();
  run();
  FileIndex index(data_.data_cache_dir);
  EXPECT_FALSE(index.find(FileIdentity::of(path)));
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  run();
  EXPECT_TRUE(FileIndex(data_.data_cache_dir).find(FileIdentity::of(path)));
}

// A tool that sets the time of a file back after it has changed it.
TEST_F(Prepare, AChangeIsSeenThoughItsTimeWasSetBack) {
  write("edited.txt", "abc");
  const auto path = folder_ / "edited.txt";
  const auto before = FileIdentity::of(path);
  const auto time = fs::last_write_time(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the kernel's clock
  std::ofstream(path) << "abd";
  fs::last_write_time(path, time);
  EXPECT_NE(FileIdentity::of(path), before);
}

TEST_F(Prepare, ADamagedIndexIsMadeAnew) {
  const auto path = write_old("a.txt", "AB");
  data_.train_file = path.string();
  const auto digest = run().digest;
  const auto index = fs::path(data_.data_cache_dir) / "files.index";
  const auto good = read_file(index);
  for (const std::string& bad :
       {std::string(), std::string("\0\xff\n\n", 4), good.substr(0, good.size() / 2),
        "skein file index 2\n" + std::string(32, 'a') + " -1 x\n" + std::string(1000, ' ')}) {
    write_file_atomically(index, bad);
    EXPECT_EQ(run().digest, digest);
  }
  EXPECT_TRUE(FileIndex(data_.data_cache_dir).find(FileIdentity::of(path)));
}

TEST_F(Prepare, DamagedPreparedFilesAreMadeAnew) {
  data_.train_file = write_old("a.txt", "ABCDEFGH").string();
  const auto path = run().prepared_file;
  const auto good = read_file(path);
  for (const size_t at : {size_t{0}, size_t{20}, size_t{60}, size_t{130}, good.size() - 1}) {
    auto bad = good;
    bad[at] ^= 1;
    write_file_atomically(path, bad);
    EXPECT_FALSE(run().was_reused) << "byte " << at;
    EXPECT_EQ(read_file(path), good);
    EXPECT_TRUE(run().was_reused);
  }
  write_file_atomically(path, good.substr(0, good.size() - 2));
  EXPECT_FALSE(run().was_reused);
  EXPECT_EQ(read_file(path), good);
}

TEST_F(Prepare, SkippedLinesAreRememberedAndStillStopOthers) {
  data_.train_file = write_old("a.jsonl", "{\"text\": \"AB\"}\nbroken\n").string();
  EXPECT_NE(refusal<IoError>([&] { run(); }).find("a.jsonl:2: invalid JSON"), std::string::npos);
  EXPECT_EQ(count_files(".tokens") + count_files(".tmp"), 0);
  data_.bad_lines = config::BadLines::kSkip;
  EXPECT_EQ(run().bad_lines, 1u);
  EXPECT_EQ(run().bad_lines, 1u);
  EXPECT_TRUE(run().was_reused);
  data_.bad_lines = config::BadLines::kStop;
  EXPECT_THROW(run(), IoError);
}

TEST_F(Prepare, TooLittleDataIsRefused) {
  const auto refused = [&](const std::string& name, std::string_view content) {
    data_.train_file = write(name, content).string();
    return refusal<IoError>([&] { run(); });
  };
  for (const auto* name : {"e.txt", "e.jsonl", "e.bin"}) {
    EXPECT_NE(refused(name, "").find("no data"), std::string::npos) << name;
  }
  EXPECT_NE(refused("blank.jsonl", "\n\n").find("no data"), std::string::npos);
  EXPECT_NE(refused("b.bin", "ab").find("only one token"), std::string::npos);
  data_.train_file = "";
  EXPECT_NE(refusal<UserError>([&] { run(); }).find("train_file"), std::string::npos);
  EXPECT_NE(refusal<UserError>([&] { run(Split::kEval); }).find("eval_file"), std::string::npos);
}

// Runs `work` in another process and returns its process id. The child ends with 0 if all is well.
template <typename Work>
pid_t in_child(const Work& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(60);
  int code = 1;
  try {
    code = work() ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  ::_exit(code);
}

int wait_for(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Prepare, ManyProcessesPrepareAtOnce) {
  data_.train_file = write("a.txt", std::string(3'000'000, 'x')).string();
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(in_child([&] {
      const auto data = run();
      return data.tokens.size() == 3'000'001 && data.tokens.read(2'999'999, 2) == Ids{'x', 256};
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(count_files(".tokens"), 1);
  EXPECT_EQ(count_files(".tmp"), 0);
}

// While one process holds the lock, the second waits and then finds the result.
TEST_F(Prepare, TheSecondProcessUsesTheFirstsResult) {
  data_.train_file = write_old("a.txt", "ABCD").string();
  const auto first = run();
  const auto content = read_file(first.prepared_file);
  fs::remove(first.prepared_file);
  // The child is there before the lock: it would inherit it.
  const pid_t child = in_child([&] {
    while (!fs::exists(folder_ / "locked")) ::usleep(1000);
    const auto data = run();
    return data.was_reused && data.tokens.size() == 5;
  });
  auto lock = std::make_unique<FileLock>(fs::path(data_.data_cache_dir) / (first.digest + ".lock"));
  write("locked", "");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  write_file_atomically(first.prepared_file, content);
  lock.reset();
  EXPECT_EQ(wait_for(child), 0);
}

// Locks are removed, and yet nobody locks a file that has lost its name.
TEST_F(Prepare, LocksLeaveNothingAndHoldAllTheSame) {
  const auto lock = folder_ / "lock", number = write("number", "0");
  constexpr int kProcesses = 4, kRounds = 100;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(in_child([&] {
      for (int round = 0; round < kRounds; ++round) {
        const FileLock held(lock);
        const int before = std::stoi(read_file(number));
        std::this_thread::yield();
        write_file_atomically(number, std::to_string(before + 1));
      }
      return true;
    }));
  }
  for (const auto child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(read_file(number), std::to_string(kProcesses * kRounds));
  EXPECT_FALSE(fs::exists(lock));
  data_.train_file = write_old("a.txt", "ABCD").string();
  run();
  EXPECT_EQ(count_files(".lock"), 0);
}

TEST_F(Prepare, AFullDiskIsSaidAndLeavesNothing) {
  data_.train_file = write_old("a.txt", std::string(1'000'000, 'x')).string();
  const pid_t child = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 100'000, .rlim_max = 100'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    const auto message = refusal<IoError>([&] { run(); });
    return message.find("cannot store prepared data") == 0 &&
           message.find("data_cache_dir") != std::string::npos;
  });
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(count_files(".tokens") + count_files(".tmp"), 0);
}

TEST_F(Prepare, ACacheThatCannotBeMadeIsSaid) {
  data_.train_file = write_old("a.txt", "AB").string();
  data_.data_cache_dir = (folder_ / "a.txt" / "cache").string();
  EXPECT_NE(refusal<IoError>([&] { run(); }).find("data_cache_dir"), std::string::npos);
}

TEST_F(Prepare, HeldOutShareFollowsTheKeys) {
  data_.train_file = write("a.txt", "AB").string();
  EXPECT_EQ(held_out_percentage(data_, false), 0);
  EXPECT_EQ(held_out_percentage(data_, true), 5);
  data_.validation_split_percentage = 20;
  EXPECT_EQ(held_out_percentage(data_, true), 20);
  EXPECT_EQ(held_out_percentage(data_, false), 20) << "evaluating must not change the training";
  data_.eval_file = data_.train_file;
  EXPECT_EQ(held_out_percentage(data_, true), 0);
}

}  // namespace
}  // namespace skein::data
