// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How is data prepared once, for all processes and all later runs?
//
// A prepared file is named by its key, so that it is never stale. Of several processes one makes it
// (KEY.lock) and the others wait for its result. A file that is read again is verified, once after
// each change; a damaged one is made anew.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/error.h"
#include "skein/data/file_index.h"
#include "skein/data/source_files.h"
#include "skein/data/token_cache.h"

namespace skein::data {

[[noreturn]] void refuse_storing(const std::string& why);
// Runs what writes below cache_folder(). An IoError of it says what to do.
template <typename Action>
auto explain_storing(const Action& action) -> decltype(action()) try {
  return action();
} catch (const IoError& error) {
  refuse_storing(error.what());
}

// data_cache_dir, or its default. Throws UserError when there is no home folder to put it in.
fs::path cache_folder(const config::DataConfig& data);

// One prepared file of the folder.
class CacheEntry {
 public:
  // Both must outlive this object.
  CacheEntry(const config::DataConfig& data, PreparedKind kind, std::string key, FileIndex& index);

  const fs::path& path() const { return path_; }
  bool was_reused() const { return was_reused_; }

  // Of the file, which `make` writes at path() when it is absent, damaged, not what the run wants,
  // or when overwrite_cache asks for that. Throws what `make` does, and IoError.
  TokenCacheHeader header(Split split, const std::function<TokenCacheHeader()>& make);

 private:
  std::optional<TokenCacheHeader> usable();
  void verify(const TokenCacheHeader& header);

  const config::DataConfig& data_;
  PreparedKind kind_;
  std::string key_;
  fs::path folder_, path_;
  FileIndex& index_;
  bool was_reused_ = true;
  bool has_warned_ = false;
};

// Says what bad_lines=skip left out; nothing when that is nothing.
void report_bad_lines(uint64_t count, const std::vector<std::string>& first, Split split);

}  // namespace skein::data
