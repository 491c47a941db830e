// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/file_index.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <sstream>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/log.h"
#include "skein/data/file_lock.h"

namespace skein::data {
namespace {

constexpr const char* kFirstLine = "skein file index 2";
constexpr size_t kDigestLength = 32;
constexpr size_t kMaxEntries = 200'000;

using Facts = std::map<FileIdentity, FileFacts>;

// Lines that make no sense are left out: the file may have been damaged, and nothing is lost.
Facts read_index(const fs::path& path) {
  Facts facts;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return facts;
  std::istringstream lines(read_file(path));
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return facts;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    FileIdentity identity;
    FileFacts fact;
    words >> identity.path_digest >> identity.size >> identity.modified_ns >> identity.changed_ns >>
        identity.inode >> identity.device >> fact.digest >> fact.largest_token;
    if (words && words.eof() && identity.path_digest.size() == kDigestLength &&
        fact.digest.size() == kDigestLength) {
      facts[identity] = fact;
    }
  }
  return facts;
}

std::string to_text(const Facts& facts) {
  std::string text = fmt::format("{}\n", kFirstLine);
  for (const auto& [identity, fact] : facts) {
    text += fmt::format("{} {} {} {} {} {} {} {}\n", identity.path_digest, identity.size,
                        identity.modified_ns, identity.changed_ns, identity.inode, identity.device,
                        fact.digest, fact.largest_token);
  }
  return text;
}

// One path has one entry: what a file was before is of no use.
void merge(Facts& all, const Facts& news) {
  if (all.size() + news.size() > kMaxEntries) all.clear();
  for (const auto& [identity, fact] : news) {
    const FileIdentity first{.path_digest = identity.path_digest, .modified_ns = INT64_MIN};
    auto old = all.lower_bound(first);
    while (old != all.end() && old->first.path_digest == identity.path_digest) {
      old = all.erase(old);
    }
    all[identity] = fact;
  }
}

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileIdentity FileIdentity::of(const fs::path& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    throw_errno(fmt::format("cannot look at {}", path.string()));
  }
  return {.path_digest = digest(fs::absolute(path).lexically_normal().string()),
          .size = static_cast<uint64_t>(info.st_size),
          .modified_ns = nanoseconds(info.st_mtim),
          .changed_ns = nanoseconds(info.st_ctim),
          .inode = info.st_ino,
          .device = info.st_dev};
}

FileIndex::FileIndex(const fs::path& folder) : path_(folder / "files.index") {
  try {
    facts_ = read_index(path_);
  } catch (const IoError& error) {
    log_warning("{}; every file is read again", error.what());
  }
}

std::optional<FileFacts> FileIndex::find(const FileIdentity& identity) const {
  const auto found = facts_.find(identity);
  if (found == facts_.end()) return std::nullopt;
  return found->second;
}

void FileIndex::remember(const std::map<FileIdentity, FileFacts>& facts) {
  merge(facts_, facts);
  if (facts.empty()) return;
  try {
    make_directories(path_.parent_path());
    const FileLock lock(path_.string() + ".lock");
    auto all = read_index(path_);
    merge(all, facts);
    write_file_atomically(path_, to_text(all));
  } catch (const IoError& error) {
    log_debug("{}; every file will be read again", error.what());
  }
}

}  // namespace skein::data
