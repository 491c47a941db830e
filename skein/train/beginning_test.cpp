// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The decision where a start begins, and what carrying it out leaves in the folder.

#include "skein/train/beginning.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/files/run_record.h"
#include "skein/config/saved_config.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/hash.h"
#include "skein/core/log_writer.h"
#include "skein/core/testing.h"
#include "skein/plan/continuation.h"
#include "skein/train/run_folder.h"

namespace skein::train {
namespace {

constexpr int kRanks = 3;

// Fails with `error` where `fails` says so; time passes at once.
class FaultyDisk final : public FileSystem {
 public:
  std::function<bool(const std::string& call, const fs::path& path)> fails =
      [](const auto&, const auto&) { return false; };
  int error = ESTALE;

  int open(const fs::path& path, int flags) override {
    return refuse("open", path) ? -1 : FileSystem::open(path, flags);
  }
  int rename(const fs::path& from, const fs::path& to, unsigned flags) override {
    return refuse("rename", from) ? -1 : FileSystem::rename(from, to, flags);
  }
  int remove(const fs::path& path) override {
    return refuse("remove", path) ? -1 : FileSystem::remove(path);
  }
  void pause(std::chrono::milliseconds) override {}

 private:
  bool refuse(const char* call, const fs::path& path) {
    const std::lock_guard lock(mutex_);
    const bool refused = fails(call, path);
    if (refused) errno = error;
    return refused;
  }
  std::mutex mutex_;
};

class BeginningTest : public TemporaryFolder {
 protected:
  BeginningTest() : output_(folder_ / "out") {
    make_directories(output_);
    set_log_writer([this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_ += line;
    });
  }
  ~BeginningTest() override { set_log_writer({}); }

  // A whole checkpoint; the decision does not look into its files.
  fs::path save(const std::string& token, int64_t step, const std::string& folder = "out") {
    const auto path = folder_ / folder / checkpoint::checkpoint_name(step);
    make_directories(path);
    const auto text = fmt::format("weights of step {} by {}", step, token);
    write_file_atomically(path / "weights.bin", text);
    write_file_atomically(
        path / checkpoint::kManifestName,
        checkpoint::manifest_text(
            {.step = static_cast<uint64_t>(step),
             .run = token,
             .saved_at = "",
             .conditions = {},
             .files = {{"weights.bin", text.size(), {{0, text.size(), digest(text)}}}}}));
    return path;
  }

  void damage(int64_t step) {
    const auto path = output_ / checkpoint::checkpoint_name(step) / "weights.bin";
    auto text = read_file(path);
    text[text.size() / 2] ^= 1;
    write_file_atomically(path, text);
  }

  // Runs `body` on every rank; returns what the first one that failed said, empty when none did.
  template <typename Error = std::exception>
  std::string on_ranks(const std::string& token, const std::function<void(World&)>& body) {
    std::string said;
    try {
      comm::run_ranks(kRanks, [&](comm::Group& group) {
        World world{.group = group,
                    .store = store_,
                    .local_rank = group.rank(),
                    .token = token,
                    .stop_requested = [] { return false; },
                    .local_size = kRanks};
        try {
          body(world);
        } catch (const CommError&) {
          throw;  // ended with the rank that has spoken
        } catch (const Error& error) {
          const std::lock_guard lock(mutex_);
          said = error.what();
          throw;
        }
      });
    } catch (const std::exception&) {
      EXPECT_FALSE(said.empty());
    }
    return said;
  }

  config::Resolved resolved(const std::vector<std::string>& words) {
    auto all = words;
    all.push_back("output_dir=" + output_.string());
    return config::load(all);
  }

  // One start: decides and claims. Returns the name of the checkpoint it begins with.
  std::string start(const std::string& token, const std::vector<std::string>& words = {}) {
    const auto config = resolved(words);
    std::set<std::string> begun;
    const auto said = on_ranks(token, [&](World& world) {
      const auto beginning = decide_beginning(config.config.checkpoint, output_, world);
      claim_folder(output_, config, beginning, world);
      const std::lock_guard lock(mutex_);
      begun.insert(beginning.checkpoint ? beginning.checkpoint->filename().string() : "");
    });
    if (!said.empty()) return "refused: " + said;
    EXPECT_EQ(begun.size(), 1U);  // all ranks alike
    return *begun.begin();
  }

  // What a start is refused with; nothing may have changed.
  template <typename Error>
  std::string refused(const std::vector<std::string>& words = {}) {
    const auto before = listing();
    const auto config = resolved(words);
    const auto said = on_ranks<Error>("refused", [&](World& world) {
      decide_beginning(config.config.checkpoint, output_, world);
    });
    EXPECT_EQ(listing(), before);
    return said;
  }

  std::set<std::string> listing() {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(output_)) names.insert(entry.path().filename());
    return names;
  }
  std::set<std::string> checkpoints() {
    std::set<std::string> names;
    for (const auto& name : listing()) {
      if (name.starts_with("checkpoint-")) names.insert(name);
    }
    return names;
  }

  fs::path output_;
  MemoryStore store_;
  std::mutex mutex_;
  std::string log_;
};

using Names = std::set<std::string>;

TEST_F(BeginningTest, AnEmptyFolderBeginsAndThenGoesOn) {
  EXPECT_EQ(start("a"), "");
  EXPECT_EQ(start("b"), "");  // killed before it has saved
  save("b", 4);
  save("b", 8);
  EXPECT_EQ(start("c"), "checkpoint-8");
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-4", "checkpoint-8"}));
  EXPECT_EQ(checkpoint::read_record(output_)->starts.size(), 3U);
}

TEST_F(BeginningTest, AFolderWithoutARecordIsContinued) {
  for (const int step : {4, 8}) save("old", step);
  write("out/config.yaml", config::to_yaml(resolved({})));
  write("out/trainer_log.jsonl", "{}\n");
  EXPECT_EQ(start("a"), "checkpoint-8");
  save("a", 12);
  EXPECT_EQ(start("b"), "checkpoint-12");
  const auto record = checkpoint::read_record(output_).value();
  EXPECT_TRUE(record.has_start("old") && record.has_start("a") && record.has_start("b"));
}

// Whichever rank cannot open it, however often: the disk is not the checkpoint.
TEST_F(BeginningTest, AnUnreadableFileIsAnErrorAndATransientOneNone) {
  start("a");
  for (const int step : {4, 8}) save("a", step);
  FaultyDisk disk;
  const ScopedFileSystem scope(disk);
  for (const char* name : {"weights.bin", "manifest.json", ".skein-run"}) {
    for (const int error : {ESTALE, EIO, ETIMEDOUT}) {
      disk.error = error;
      for (int failing = 0; failing < 5; ++failing) {  // one attempt on one of the ranks
        disk.fails = [&, left = failing](const auto& call, const auto& path) mutable {
          return call == "open" && path.filename() == name && left-- == 0;
        };
        EXPECT_EQ(start("b"), "checkpoint-8") << name << failing;
      }
      disk.fails = [&](const auto& call, const auto& path) {
        return call == "open" && path.filename() == name;
      };
      EXPECT_NE(refused<IoError>(), "") << name;
    }
  }
}

TEST_F(BeginningTest, DamageIsSkippedAndSetAsideWithTheRest) {
  start("a");
  for (const int step : {4, 8, 12}) save("a", step);
  damage(12);
  write("out/checkpoint-16/manifest.json", "{}");
  EXPECT_EQ(start("b"), "checkpoint-8");
  EXPECT_PRED2(contains, log_, "checkpoint-12: weights.bin");
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-4", "checkpoint-8", "checkpoint-12.aside-b",
                                  "checkpoint-16.aside-b"}));
}

TEST_F(BeginningTest, CheckpointsOfWhichNoneVerifiesAreRefused) {
  start("a");
  for (const int step : {4, 8}) save("a", step);
  for (const int step : {4, 8}) damage(step);
  const auto said = refused<IoError>();
  EXPECT_PRED2(contains, said, "checkpoint-8, checkpoint-4");
  EXPECT_PRED2(contains, said, "--fresh");
}

TEST_F(BeginningTest, AnotherProgramsCheckpointAloneIsRefusedToo) {
  write("out/checkpoint-500/optimizer.pt", "theirs");
  EXPECT_PRED2(contains, refused<IoError>(), "checkpoint-500");
  EXPECT_EQ(start("a", {"--fresh"}), "");
  EXPECT_EQ(read_file(output_ / "checkpoint-500.aside-a/optimizer.pt"), "theirs");
}

TEST_F(BeginningTest, AnotherProgramsCheckpointBesideOursStays) {
  start("a");
  save("a", 4);
  write("out/checkpoint-500/optimizer.pt", "theirs");
  EXPECT_EQ(start("b"), "checkpoint-4");
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-4", "checkpoint-500"}));
}

TEST_F(BeginningTest, AnotherRunsCheckpointIsNotContinuedUnasked) {
  start("a");
  save("a", 4);
  save("stranger", 40);
  EXPECT_EQ(start("b"), "checkpoint-4");
  EXPECT_PRED2(contains, log_, "checkpoint-40: it is another run's");
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-4", "checkpoint-40"}));
}

// Resumed from 36, killed at 39: the next start knows nothing of the old 40.
TEST_F(BeginningTest, ARollBackLeavesTheNewerOnes) {
  start("a");
  for (const int step : {36, 40, 44}) save("a", step);
  const auto wish = "resume_from_checkpoint=" + (output_ / "checkpoint-36").string();
  EXPECT_EQ(start("b", {wish}), "checkpoint-36");
  EXPECT_EQ(checkpoints(),
            (Names{"checkpoint-36", "checkpoint-40.aside-b", "checkpoint-44.aside-b"}));
  EXPECT_PRED2(contains, log_, "checkpoint-44 is not continued by this run");
  EXPECT_EQ(start("c"), "checkpoint-36");
  save("c", 38);
  EXPECT_EQ(start("d"), "checkpoint-38");
}

// At every call that carries the decision out the process ends: before the record nothing has
// happened, after it nothing is undecided.
TEST_F(BeginningTest, AKillBetweenTwoRenamesChangesNothing) {
  const auto wish = "resume_from_checkpoint=" + (output_ / "checkpoint-36").string();
  for (int kill = 0; kill < 3; ++kill) {
    fs::remove_all(output_);
    make_directories(output_);
    start("a");
    for (const int step : {36, 40, 44}) save("a", step);
    FaultyDisk disk;
    disk.error = EIO;
    disk.fails = [&, left = kill](const auto& call, const auto& path) mutable {
      const bool is_one = call == "rename" && path.filename().string().starts_with("checkpoint-");
      return is_one && left-- <= 0;  // from there on nothing happens any more
    };
    {
      const ScopedFileSystem scope(disk);
      start("b", {wish});
    }
    EXPECT_EQ(start("c"), "checkpoint-36") << kill;
    EXPECT_EQ(checkpoint::list_checkpoints(output_).size(), 1U);
    save("c", 40);
    EXPECT_EQ(start("d"), "checkpoint-40");
  }
  // The record could not be written: all as it was.
  fs::remove_all(output_);
  make_directories(output_);
  start("a");
  for (const int step : {36, 40}) save("a", step);
  FaultyDisk disk;
  disk.error = ENOSPC;
  disk.fails = [](const auto& call, const auto& path) {
    return call == "rename" && path.filename().string().starts_with(".skein-run");
  };
  {
    const ScopedFileSystem scope(disk);
    EXPECT_PRED2(contains, start("b", {wish}), "No space left");
  }
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-36", "checkpoint-40"}));
  EXPECT_EQ(start("c"), "checkpoint-40");
}

// A requeue gives the same command.
TEST_F(BeginningTest, ANamedCheckpointIsTheBeginningOfARun) {
  save("other", 100, "elsewhere");
  const auto wish = "resume_from_checkpoint=" + (folder_ / "elsewhere/checkpoint-100").string();
  EXPECT_EQ(start("a", {wish}), "checkpoint-100");
  EXPECT_EQ(start("b", {wish}), "checkpoint-100");  // nothing newer yet
  save("b", 104);
  EXPECT_EQ(start("c", {wish}), "checkpoint-104");
  EXPECT_EQ(start("c2", {wish}), "checkpoint-104");  // killed before it saved
  EXPECT_EQ(start("c3", {wish + "/"}), "checkpoint-104");
  save("c3", 108);
  fs::remove_all(folder_ / "elsewhere");  // no longer needed
  EXPECT_EQ(start("d", {wish}), "checkpoint-108");
  EXPECT_EQ(start("e"), "checkpoint-108");
}

TEST_F(BeginningTest, ABeginningElsewhereLeavesAllThatIsHere) {
  start("a");
  for (const int step : {4, 8}) save("a", step);
  save("other", 6, "elsewhere");
  const auto wish = "resume_from_checkpoint=" + (folder_ / "elsewhere/checkpoint-6").string();
  EXPECT_EQ(start("b", {wish}), "checkpoint-6");
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-4.aside-b", "checkpoint-8.aside-b"}));
}

// A folder that was set aside is a beginning like one elsewhere: what lies here is another branch.
TEST_F(BeginningTest, ABeginningThatWasSetAsideLeavesAllThatIsHere) {
  start("a");
  for (const int step : {2, 4, 6}) save("a", step);
  EXPECT_EQ(start("b", {"resume_from_checkpoint=" + (output_ / "checkpoint-2").string()}),
            "checkpoint-2");
  for (const int step : {4, 6}) save("b", step);
  const auto wish = "resume_from_checkpoint=" + (output_ / "checkpoint-4.aside-b").string();
  EXPECT_EQ(start("c", {wish}), "checkpoint-4.aside-b");
  EXPECT_EQ(checkpoint::list_checkpoints(output_).size(), 0U);
  // Until it has saved there is nothing that nan_policy=rollback could go back to.
  on_ranks("c", [&](World& world) { EXPECT_FALSE(newest_checkpoint(output_, world)); });
  EXPECT_EQ(start("d", {wish}), "checkpoint-4.aside-b");
  save("d", 5);
  EXPECT_EQ(start("e", {wish}), "checkpoint-5");
  EXPECT_EQ(start("f"), "checkpoint-5");
}

TEST_F(BeginningTest, AnotherRunsCheckpointInThisFolderIsABeginningElsewhere) {
  start("a");
  for (const int step : {4, 6}) save("a", step);
  save("stranger", 8);
  const auto wish = "resume_from_checkpoint=" + (output_ / "checkpoint-8").string();
  EXPECT_EQ(start("b", {wish}), "checkpoint-8");
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-4.aside-b", "checkpoint-6.aside-b", "checkpoint-8"}));
  on_ranks("b", [&](World& world) { EXPECT_FALSE(newest_checkpoint(output_, world)); });
  EXPECT_PRED2(contains, refused<IoError>(), "checkpoint-8, of which none can be continued");
  EXPECT_EQ(start("c", {wish}), "checkpoint-8");
  save("c", 10);
  EXPECT_EQ(start("d", {wish}), "checkpoint-10");
  EXPECT_EQ(start("e"), "checkpoint-10");
}

TEST_F(BeginningTest, FreshRemovesWhatTheRunHasWrittenAndNothingElse) {
  start("a");
  save("a", 4);
  save("stranger", 40);
  write("out/runs/mine.txt", "x");
  write("out/runs/events.a", "x");
  write("out/wandb/run-a/files/x", "x");
  write("out/trainer_log.jsonl", "{}\n");
  write("out/notes.txt", "x");
  record_files(output_, "a", {output_ / "runs/events.a", output_ / "wandb/run-a", "/elsewhere/x"});
  EXPECT_EQ(start("b", {"--fresh"}), "");
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-40.aside-b"}));
  EXPECT_TRUE(fs::exists(output_ / "runs/mine.txt"));
  EXPECT_FALSE(fs::exists(output_ / "runs/events.a"));
  EXPECT_FALSE(fs::exists(output_ / "wandb"));
  EXPECT_FALSE(fs::exists(output_ / "trainer_log.jsonl"));
  EXPECT_TRUE(fs::exists(output_ / "notes.txt"));
  EXPECT_EQ(start("c"), "");  // it has not saved yet
}

TEST_F(BeginningTest, FreshInAFolderThatWasNeverARunRemovesNothing) {
  for (const char* name : {"runs/mine.txt", "wandb/mine.txt", "failures.json"}) {
    write(fmt::format("out/{}", name), "x");
  }
  EXPECT_EQ(start("a", {"--fresh"}), "");
  for (const char* name : {"runs/mine.txt", "wandb/mine.txt", "failures.json"}) {
    EXPECT_TRUE(fs::exists(output_ / name)) << name;
  }
  EXPECT_EQ(start("b", {"--fresh"}), "");
  EXPECT_TRUE(fs::exists(output_ / "failures.json"));
}

TEST_F(BeginningTest, FreshRemovesNothingThroughALink) {
  start("a");
  for (const char* elsewhere : {"elsewhere", "out-too"}) {  // the second begins as the folder does
    write(fmt::format("{}/events.a", elsewhere), "x");
    fs::remove(output_ / "runs");
    fs::create_directory_symlink(folder_ / elsewhere, output_ / "runs");
    record_files(output_, "a", {output_ / "runs/events.a"});
    EXPECT_EQ(start("b", {"--fresh"}), "");
    EXPECT_TRUE(fs::exists(folder_ / elsewhere / "events.a"));
    EXPECT_TRUE(fs::is_symlink(output_ / "runs"));
  }
}

// --fresh is one decision as well.
TEST_F(BeginningTest, AnInterruptedFreshIsMadeUpFor) {
  start("a");
  for (const int step : {4, 8}) save("a", step);
  FaultyDisk disk;
  disk.error = EACCES;
  disk.fails = [](const auto& call, const auto& path) {
    return call == "rename" && path.filename() == "checkpoint-4";
  };
  {
    const ScopedFileSystem scope(disk);
    EXPECT_PRED2(contains, start("b", {"--fresh"}), "refused");
  }
  EXPECT_EQ(checkpoints(), (Names{"checkpoint-4"}));
  EXPECT_EQ(start("c"), "");
  EXPECT_EQ(checkpoints(), (Names{}));
}

// Whoever names what an interrupted --fresh would still remove wants it.
TEST_F(BeginningTest, ANamedCheckpointTakesAnInterruptedFreshBack) {
  for (const char* name : {"checkpoint-4", "checkpoint-8.aside-b"}) {
    fs::remove_all(output_);
    make_directories(output_);
    start("a");
    for (const int step : {2, 4, 8}) save("a", step);
    start("b", {"resume_from_checkpoint=" + (output_ / "checkpoint-4").string()});
    save("b", 6);
    FaultyDisk disk;
    disk.error = EACCES;
    disk.fails = [](const auto& call, const auto& path) {
      return call == "rename" && path.filename() == "checkpoint-4";
    };
    {
      const ScopedFileSystem scope(disk);
      EXPECT_PRED2(contains, start("c", {"--fresh"}), "refused");
    }
    const auto left = Names{"checkpoint-2", "checkpoint-4", "checkpoint-8.aside-b"};
    EXPECT_EQ(checkpoints(), left);
    const auto wish = "resume_from_checkpoint=" + (output_ / name).string();
    EXPECT_EQ(start("d", {wish}), name);
    EXPECT_EQ(start("e", {wish}), name);
    EXPECT_PRED2(contains, log_, "a --fresh that was cut off is taken back");
    EXPECT_EQ(checkpoints().size(), 3U);  // an aside one leaves the others
    if (name == std::string("checkpoint-4")) {
      EXPECT_EQ(checkpoints(), left);
      EXPECT_EQ(start("f"), name);
    }
    EXPECT_EQ(start("g", {"--fresh"}), "");
    EXPECT_EQ(checkpoints(), Names{});
  }
}

TEST_F(BeginningTest, ARecordThatWasDeletedUnderARunKnowsItsCheckpoints) {
  save("old", 2);
  start("a");
  save("a", 4);
  fs::remove(output_ / ".skein-run");
  record_files(output_, "a", {output_ / "model.safetensors"});
  save("a", 6);
  EXPECT_EQ(start("b"), "checkpoint-6");
  EXPECT_EQ(checkpoint::list_checkpoints(output_).size(), 3U);
}

TEST_F(BeginningTest, ARefusalNamesTheFirstFew) {
  start("a");
  for (int step = 1; step <= 150; ++step) save("stranger", step);
  constexpr const char* kNamed =
      "holds checkpoint-150, checkpoint-149, checkpoint-148, "
      "checkpoint-147, checkpoint-146 and 145 more, of which none";
  EXPECT_PRED2(contains, refused<IoError>(), kNamed);
  const auto said =
      refusal<IoError>([&] { plan::checkpoint_to_continue(resolved({}).config.checkpoint); });
  EXPECT_PRED2(contains, said, kNamed);
  EXPECT_PRED2(contains, said, "checkpoint-146: it is another run's and 145 more)");
}

TEST_F(BeginningTest, FilesThatSkeinDidNotWriteAreNotReplaced) {
  for (const char* name :
       {"model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.json", "latest"}) {
    write(fmt::format("out/{}", name), "theirs");
    for (const char* word : {"seed=42", "--fresh"}) {
      EXPECT_PRED2(contains, refused<UserError>({word}),
                   fmt::format("holds {}, which no run", name));
    }
    fs::remove(output_ / name);
  }
}

// What a run has written may be the recipe of the next.
TEST_F(BeginningTest, ACopiedConfigMakesNoRunFolder) {
  write("out/config.yaml", config::to_yaml(resolved({})));
  write("out/trainer_log.jsonl", "theirs");
  EXPECT_PRED2(contains, refused<UserError>(), "holds trainer_log.jsonl, which no run");
  fs::remove(output_ / "trainer_log.jsonl");
  EXPECT_EQ(start("a"), "");
}

TEST_F(BeginningTest, AUsersConfigStays) {
  write("out/config.yaml", "# mine\nlearning_rate: 1e-3\n");
  EXPECT_EQ(start("a"), "");
  EXPECT_EQ(read_file(output_ / "config.yaml"), "# mine\nlearning_rate: 1e-3\n");
  EXPECT_TRUE(config::is_saved_config(read_file(output_ / "skein-config.yaml")));
  EXPECT_PRED2(contains, log_, "config.yaml was not written by skein and stays");
  save("a", 4);
  EXPECT_EQ(start("b", {"learning_rate=0.5"}), "checkpoint-4");
  EXPECT_PRED2(contains, log_, "learning_rate: 5e-05 → 0.5");
  EXPECT_PRED2(contains, read_file(output_ / "skein-config.yaml"), "learning_rate: 0.5");
}

TEST_F(BeginningTest, AContinuedRunListsTheKeysThatChanged) {
  start("a", {"learning_rate=0.25"});
  save("a", 4);
  start("b", {"learning_rate=0.25"});
  EXPECT_FALSE(contains(log_, "changed since the last start"));
  start("c", {"learning_rate=0.5", "max_steps=9"});
  EXPECT_PRED2(contains, log_,
               "changed since the last start:\n  learning_rate: 0.25 → 0.5\n  max_steps: -1 → 9");
}

}  // namespace
}  // namespace skein::train
