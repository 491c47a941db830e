// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// `skein gradients selftest`: does collecting on several ranks give what one rank gives? With a
// tiny model of its own, in a folder that goes afterwards.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "skein/cli/gradients/verbs.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/foreign_text.h"
#include "skein/core/stop_signals.h"
#include "skein/gradient_features/files/merge.h"
#include "skein/gradient_features/files/survey.h"
#include "skein/launch/placement/launch_flags.h"
#include "skein/launch/placement/variables.h"
#include "skein/launch/process/child.h"

namespace skein::cli {
namespace {

constexpr int kRows = 23, kBlock = 4;
constexpr int kBeatMilliseconds = 100;  // between looks for a signal

constexpr const char* kModel =
    R"({"model_type": "llama", "vocab_size": 288, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128})";

fs::path folder_for_temporaries() {
  std::error_code error;
  auto folder = fs::temp_directory_path(error);
  if (!error) return folder;
  const char* named = std::getenv("TMPDIR");
  throw UserError(fmt::format("there is no folder for temporary files, {}: {}; set TMPDIR to one",
                              named == nullptr ? "/tmp" : shown(named), error.message()));
}

class Trial {
 public:
  Trial()
      : folder_(folder_for_temporaries() /
                fmt::format("skein-gradients-{:08x}", std::random_device{}())) {
    make_directories(folder_ / "model");
    write_file_atomically(folder_ / "model/config.json", kModel);
    std::string text, rows;
    for (int i = 0; i < kRows; ++i) {
      const auto answer = fmt::format("{} times {} is {}", i, i + 1, i * (i + 1));
      text += answer + "\n";
      rows += fmt::format("{{\"prompt\": \"what is {} times {}?\", \"completion\": \"{}\"}}\n", i,
                          i + 1, answer);
    }
    write_file_atomically(folder_ / "text.txt", text);
    write_file_atomically(folder_ / "rows.jsonl", rows);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::string path(const char* name) const { return (folder_ / name).string(); }

  // This program with these words; what it prints is shown where it fails, and it fails as that
  // has.
  void run(const std::string& what, std::vector<std::string> words) const {
    const auto log = File::create(folder_ / "log", File::Access::kReadWrite);
    launch::ChildCommand command;
    words.insert(words.begin(), fs::read_symlink("/proc/self/exe").string());
    command.arguments = std::move(words);
    for (const auto& [name, value] : launch::read_environment()) {
      command.environment.push_back(name + "=" + value);
    }
    command.out = command.error = log.descriptor();
    launch::Child child(command);
    pollfd entry{.fd = child.descriptor(), .events = POLLIN, .revents = 0};
    while (::poll(&entry, 1, kBeatMilliseconds) <= 0) end_if_stop_waits();
    const auto end = child.reap();
    if (end && end->code == 0 && end->signal == 0) return;
    const auto message = fmt::format("{} failed ({}):\n{}", what,
                                     end ? launch::describe(*end) : std::string("still there"),
                                     read_file(folder_ / "log"));
    switch (static_cast<ExitCode>(end && end->signal == 0 ? end->code : 1)) {
      case ExitCode::kUser:
        throw UserError(message);
      case ExitCode::kComm:
        throw CommError(message);
      case ExitCode::kIo:
        throw IoError(message);
      case ExitCode::kStopped:
        throw Stopped(message);
      default:
        throw InternalError(message);
    }
  }

  std::vector<std::string> collect_words(const char* output) const {
    return {"gradients",
            "collect",
            "--model",
            path("base"),
            "--train_file",
            path("rows.jsonl"),
            "--output_path",
            path(output),
            "--gradient_projection_dimension",
            "256",
            "--gradient_type",
            "sgd",
            fmt::format("--block_samples={}", kBlock)};
  }

 private:
  fs::path folder_;
};

std::vector<std::string> joined(std::vector<std::string> words,
                                const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Every block lies in the folder of one rank; of a single rank in the top one.
void check_shards(const fs::path& output) {
  std::multiset<std::string> found;
  for (const auto& folder : gradient_features::shard_folders(output)) {
    for (const auto& path : gradient_features::sorted_entries(folder)) {
      const auto name = path.filename().string();
      if (name.starts_with("block-")) found.insert(name);
    }
  }
  const std::set<std::string> once(found.begin(), found.end());
  constexpr size_t kBlocks = (kRows + kBlock - 1) / kBlock;
  if (once.size() == kBlocks && found.size() == kBlocks) return;
  throw InternalError(
      fmt::format("of {} blocks {} were collected, {} files", kBlocks, once.size(), found.size()));
}

void say(const char* what) { fmt::print("ok  {}\n", what); }

}  // namespace

int selftest_gradients(Arguments arguments) {
  // Both on the same device: others round otherwise.
  std::string device = "device=cpu";
  std::vector<std::string> flags;
  for (const auto& word : arguments) {
    if (word.starts_with("device=")) {
      device = word;
    } else {
      flags.push_back(word);
    }
  }
  const auto others = launch::split_launch_flags(flags).rest;
  if (!others.empty()) {
    throw UserError(fmt::format(
        "skein gradients selftest takes launch flags and device=…, not '{}'", shown(others[0])));
  }
  if (flags.empty()) flags = {"--nproc-per-node", "2"};
  flags.push_back(device);
  const Trial trial;
  trial.run("making a tokenizer", {"tokenizer", "train", "--input", trial.path("text.txt"),
                                   "--vocab-size", "280", "--out", trial.path("model")});
  trial.run("making a model",
            {"train", "model_name_or_path=" + trial.path("model"), "train_from_scratch=true",
             "stage=sft", "train_file=" + trial.path("rows.jsonl"), "max_steps=1",
             "save_strategy=no", "report_to=none", "output_dir=" + trial.path("base"), "device=cpu",
             "--nproc-per-node", "1"});
  say("a tiny model and its tokenizer");
  trial.run("collecting on one rank",
            joined(trial.collect_words("one"), {"--nproc-per-node", "1", device}));
  say("one rank collects");
  trial.run("collecting on several ranks", joined(trial.collect_words("many"), flags));
  say("several ranks start and collect");
  check_shards(trial.path("many"));
  say("their shards are disjoint and complete");
  for (const char* output : {"one", "many"}) {
    trial.run("merging", {"gradients", "merge", trial.path(output)});
  }
  const auto merged = [&](const char* output) {
    return read_file(fs::path(trial.path(output)) / gradient_features::kMergedFile);
  };
  if (merged("one") != merged("many")) {
    throw InternalError("the merged rows of several ranks are not those of one");
  }
  say("merged, they are the rows of one rank, byte for byte");
  return 0;
}

}  // namespace skein::cli
