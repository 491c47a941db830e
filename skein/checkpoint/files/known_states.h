// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: versions of a run's state whose every byte is known, saved by ranks that are threads.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "skein/checkpoint/files/writer.h"
#include "skein/core/store.h"

namespace skein::checkpoint {

inline constexpr int kNumWriters = 3;
inline constexpr uint64_t kSmallShards = 256;  // several files

struct KnownSave {
  int version = 0;
  int64_t step = 0;  // 0: the final model
  int64_t limit = 0;
  uint64_t shard_bytes = kSmallShards;
};

class KnownStates {
 public:
  // Every rank saves its part. Returns what the ranks returned.
  std::vector<std::string> save(const KnownSave& save, const fs::path& output);

 private:
  Job job_of(const KnownSave& save, int rank);
  void add_file(FileLayout file, int version, int rank, Job& job);

  MemoryStore store_;
  std::atomic<bool> stop_ = false;
  int num_saves_ = 0;
  std::vector<std::unique_ptr<std::string>> memory_;
};

// Does the folder hold exactly this version of "model" or "optimizer"?
bool has_version(const fs::path& folder, const std::string& stem, int version);
// Its trainer_state.json.
std::string state_text(int version);

}  // namespace skein::checkpoint
