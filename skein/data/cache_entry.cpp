// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/cache_entry.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/core/progress.h"
#include "skein/data/content_digest.h"
#include "skein/data/file_lock.h"

namespace skein::data {

CacheEntry::CacheEntry(const config::DataConfig& data, PreparedKind kind, std::string key,
                       FileIndex& index)
    : data_(data),
      kind_(kind),
      key_(std::move(key)),
      folder_(cache_folder(data)),
      path_(folder_ / fmt::format("{}.{}", key_, prepared_name(kind))),
      index_(index) {}

TokenCacheHeader CacheEntry::header(Split split, const std::function<TokenCacheHeader()>& make) {
  if (!data_.overwrite_cache) {
    if (const auto header = usable()) return *header;
  }
  explain_storing([&] { make_directories(folder_); });
  bool waited = false;
  const auto lock = explain_storing([&] {
    return std::make_unique<FileLock>(folder_ / (key_ + ".lock"), [&] {
      waited = true;
      log_info("another process is preparing the {} data; waiting for it", split_name(split));
    });
  });
  if (waited || !data_.overwrite_cache) {  // another process may have finished meanwhile
    if (const auto header = usable()) return *header;
  }
  was_reused_ = false;
  auto header = make();
  index_.remember({{FileIdentity::of(path_), {.digest = header.digest}}});
  return header;
}

// Nothing when the file is absent, broken, or not what this run wants.
std::optional<TokenCacheHeader> CacheEntry::usable() {
  if (std::error_code ignored; !fs::exists(path_, ignored)) return std::nullopt;
  try {
    auto header = read_token_cache_header(path_, key_, kind_);
    // A run that stops at bad lines must hear of them.
    if (header.bad_lines > 0 && data_.bad_lines == config::BadLines::kStop) return std::nullopt;
    verify(header);
    return header;
  } catch (const IoError& error) {
    if (!std::exchange(has_warned_, true)) log_warning("{}; preparing it again", error.what());
    return std::nullopt;
  }
}

// Reads everything, unless that was done since the file was last changed.
void CacheEntry::verify(const TokenCacheHeader& header) {
  const auto identity = FileIdentity::of(path_);
  const auto known = index_.find(identity);
  if (known && known->digest == header.digest) return;
  Progress progress("checking prepared data", identity.size);
  const auto found =
      content_digest(path_, kTokenCacheHeaderBytes, num_threads(data_.preprocessing_num_workers),
                     [&](uint64_t bytes) { progress.add(bytes); });
  if (found != header.digest) {
    throw IoError(fmt::format("{}: its tokens are damaged", path_.string()));
  }
  index_.remember({{identity, {.digest = found}}});
}

void report_bad_lines(uint64_t count, const std::vector<std::string>& first, Split split) {
  if (count == 0) return;
  auto text =
      fmt::format("left {} out of the {} data (bad_lines=skip):", counted(count, "bad line"),
                  split_name(split));
  for (const auto& line : first) text += "\n  " + line;
  if (count > first.size()) text += "\n  …";
  log_warning("{}", text);
}

void refuse_storing(const std::string& why) {
  throw IoError(fmt::format(
      "cannot store prepared data: {}; make room there, or give data_cache_dir a folder with more "
      "(about two bytes per token, four for vocabularies above 65,536)",
      why));
}

fs::path cache_folder(const config::DataConfig& data) {
  if (!data.data_cache_dir.empty()) return data.data_cache_dir;
  const auto folder_of = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const auto cache = folder_of("XDG_CACHE_HOME"); cache.is_absolute()) {
    return cache / "skein" / "data";
  }
  if (const auto home = folder_of("HOME"); home.is_absolute()) {
    return home / ".cache" / "skein" / "data";
  }
  throw UserError(
      "data_cache_dir: neither XDG_CACHE_HOME nor HOME is set; say where prepared data goes");
}

}  // namespace skein::data
