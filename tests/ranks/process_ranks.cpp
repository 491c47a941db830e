// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "tests/ranks/process_ranks.h"

#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "skein/core/file.h"
#include "skein/core/testing.h"
#include "skein/launch/ranks/launcher.h"
#include "skein/launch/ranks/rank_environment.h"
#include "tests/ranks/load_case.h"
#include "tests/ranks/skip_case.h"

namespace skein::ranks {
namespace {

std::string self() { return fs::read_symlink("/proc/self/exe").string(); }

int launch_case(int ranks, const std::string& text, const std::string& folder) {
  return launch::launch({.local_ranks = ranks}, {self(), "--rank", text, folder});
}

std::string run_text(const std::string& text, comm::Group& world) {
  if (text.starts_with("skip ")) return run_skip_text(text, world);
  if (text.starts_with("load ")) return run_load_text(text, world);
  return run_case(TrainingCase::parse(text), world);
}

int run_rank(const std::string& text, const fs::path& folder) {
  const bool trains = !text.starts_with("skip ") && !text.starts_with("load ");
  const auto c = trains ? TrainingCase::parse(text) : TrainingCase();
  const auto environment = launch::from_environment();
  const auto store = launch::connect_store(environment, std::chrono::seconds(60));
  const c10::DeviceGuard guard(c.cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU));
  auto world = comm::connect({.rank = environment.rank,
                              .size = environment.size,
                              .backend = c.backend,
                              .device_index = c.cuda ? 0 : -1,  // all ranks share the one GPU
                              .local_rank = environment.rank % std::max(c.local_size, 1),
                              .local_size = std::max(c.local_size, 1),
                              .sums_by_node = c.local_size > 0,
                              .timeout = std::chrono::seconds(60)},
                             *store);
  write_file_atomically(folder / std::to_string(environment.rank), run_text(text, world));
  world.shutdown();
  return 0;
}

}  // namespace

std::optional<int> play_role(int argc, char** argv) {
  const std::string role = argc > 3 ? argv[1] : "";
  if (role == "--launch" && argc > 4) return launch_case(std::stoi(argv[2]), argv[3], argv[4]);
  if (role == "--rank") return run_rank(argv[2], argv[3]);
  return std::nullopt;
}

std::vector<std::string> run_on_processes(const TrainingCase& c) {
  return run_on_processes(c.text(), c.ranks);
}

std::vector<std::string> run_on_processes(const std::string& text, int ranks) {
  const auto folder = make_temporary_folder("ranks");
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(self().c_str(), self().c_str(), "--launch", std::to_string(ranks).c_str(), text.c_str(),
            folder.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << text;
  std::vector<std::string> texts;
  for (int rank = 0; status == 0 && rank < ranks; ++rank) {
    texts.push_back(read_file(folder / std::to_string(rank)));
  }
  fs::remove_all(folder);
  return texts;
}

}  // namespace skein::ranks
