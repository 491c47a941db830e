// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/worker_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "skein/core/error.h"

namespace skein::cli {

std::filesystem::path worker_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "skein-worker";
}

void exec_worker(const std::string& command, std::span<const std::string> arguments) {
  std::vector<std::string> words = {worker_path().string(), command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  throw_errno(fmt::format("cannot start {}, which `skein {}` needs", words[0], command));
}

}  // namespace skein::cli
