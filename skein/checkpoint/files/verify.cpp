// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/manifest.h"
#include "skein/checkpoint/files/safetensors.h"
#include "skein/core/folder.h"
#include "skein/core/hash.h"
#include "skein/core/system_failure.h"

namespace skein::checkpoint {
namespace {

uint64_t bytes_of_files(const fs::path& folder) {
  uint64_t bytes = 0;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::end(entry); ++entry) {
    if (entry.depth() > 0) entry.disable_recursion_pending();  // names have one folder at most
    std::error_code ignored;
    if (entry->is_regular_file(ignored) && entry->path().filename() != kManifestName) {
      const auto size = entry->file_size(ignored);
      bytes += ignored ? 0 : size;
    }
  }
  return bytes;
}

// Read with the size that the file should have: a truncated file still has its header.
std::optional<Header> header_of(const File& file, const FileRecord& record) {
  if (!record.name.ends_with(".safetensors") || record.size < 8) return std::nullopt;
  try {
    uint64_t length = 0;
    file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > std::min(kMaxHeaderBytes, record.size - 8)) return std::nullopt;
    std::string json(length, '\0');
    file.read_at(8, std::as_writable_bytes(std::span(json)));
    return parse_header(json, record.size - 8 - length, record.name);
  } catch (const IoError&) {
    return std::nullopt;  // the header's own range is reported
  }
}

// The tensors that have bytes in [begin, end) of the file.
std::string tensors_in(const File& file, const FileRecord& record, uint64_t begin, uint64_t end) {
  const auto header = header_of(file, record);
  if (!header) return "";
  std::vector<std::string> names;
  for (const auto& tensor : header->tensors) {
    const uint64_t first = header->data_begin + tensor.begin,
                   last = header->data_begin + tensor.end;
    if (first < end && begin < last) names.push_back(tensor.name);
  }
  const size_t more = names.size() > 3 ? names.size() - 3 : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// Of the checkpoint's bytes, taken one file after the other, every share gets an equal stretch.
struct Stretch {
  uint64_t begin = 0;
  uint64_t end = 0;

  const Share& share;

  Stretch(const Manifest& manifest, const Share& of) : share(of) {
    uint64_t total = 0;
    for (const auto& file : manifest.files) total += file.size;
    const auto rank = static_cast<uint64_t>(share.rank), size = static_cast<uint64_t>(share.size);
    begin = total * rank / size;
    end = total * (rank + 1) / size;
  }
  void tell_read(uint64_t bytes) const {
    if (share.on_read) share.on_read(bytes);
  }
  bool holds(uint64_t position) const { return begin <= position && position < end; }
};

// `start` is the position of the file's first byte. A range belongs to the stretch that its first
// byte is in.
void verify_file(const fs::path& folder, const FileRecord& record, const Stretch& stretch,
                 uint64_t start, std::vector<Problem>& problems) {
  File file;
  uint64_t size = 0;
  try_again([&] {
    file = open_beneath(folder, record.name);
    size = file.size();
  });
  if (size != record.size) {
    problems.push_back({record.name,
                        tensors_in(file, record, std::min(size, record.size), record.size),
                        fmt::format("it has {} bytes, {} were written", size, record.size)});
    return;
  }
  std::vector<std::byte> buffer;
  for (const auto& range : record.ranges) {
    if (!stretch.holds(start + range.begin)) continue;
    buffer.resize(range.end - range.begin);
    try_again([&] {
      if (!file) file = open_beneath(folder, record.name);
      auto held = std::move(file);  // goes with a failure: a stale handle stays stale
      held.read_at(range.begin, buffer);
      file = std::move(held);
    });
    stretch.tell_read(buffer.size());
    if (digest(std::span<const std::byte>(buffer)) == range.digest) continue;
    problems.push_back(
        {record.name, tensors_in(file, record, range.begin, range.end),
         fmt::format("bytes {} to {} are not those that were written", range.begin, range.end)});
  }
}

// A tensor file that the manifest does not know could be read in place of one that it does.
void find_strangers_in(const fs::path& folder, const std::string& inner, const Manifest& manifest,
                       std::vector<Problem>& problems) {
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder / inner, error);
       !error && entry != fs::end(entry); entry.increment(error)) {
    const auto name = entry->path().filename().string();
    if (!is_weights_name(name) && !is_layout_name(name, kOptimizerStem)) continue;
    const auto path = (fs::path(inner) / name).string();
    const bool known = std::any_of(manifest.files.begin(), manifest.files.end(),
                                   [&](const auto& file) { return file.name == path; });
    if (!known) problems.push_back({path, "", "the manifest does not name it"});
  }
  if (error) {
    throw SystemFailure(
        fmt::format("cannot list {}: {}", (folder / inner).string(), error.message()),
        error.value());
  }
}

// Also in the folders of further models.
void find_strangers(const fs::path& folder, const Manifest& manifest,
                    std::vector<Problem>& problems) {
  std::set<std::string> folders{""};
  for (const auto& file : manifest.files) {
    const fs::path name = file.name;
    if (is_layout_name(name.filename().string(), kOptimizerStem) ||
        is_weights_name(name.filename().string())) {
      folders.insert(name.parent_path().string());
    }
  }
  for (const auto& inner : folders) find_strangers_in(folder, inner, manifest, problems);
}

// Of the exception that is being handled.
Problem problem_of(const std::string& file) {
  try {
    throw;
  } catch (const SystemFailure& failure) {
    return {file, "", failure.what(), !says_absent(failure.code)};
  } catch (const std::bad_alloc&) {
    return {file, "", "there is no memory to read it", true};
  } catch (const std::exception& error) {
    return {file, "", error.what()};
  }
}

// Of those that are `wanted`.
std::vector<Problem> verify_files(const fs::path& folder, Manifest* manifest, const Share& share,
                                  const std::function<bool(const FileRecord&)>& wanted) {
  std::vector<Problem> problems;
  Manifest accepted;
  try {
    accepted = read_manifest(folder);
    try_again([&] { find_strangers(folder, accepted, problems); });
  } catch (const std::exception&) {
    return {problem_of(std::string(kManifestName))};
  }
  const Stretch stretch(accepted, share);
  uint64_t start = 0;
  for (const auto& record : accepted.files) {
    try {
      if (wanted(record)) verify_file(folder, record, stretch, start, problems);
    } catch (const std::exception&) {
      problems.push_back(problem_of(record.name));
    }
    start += record.size;
  }
  if (manifest != nullptr) *manifest = std::move(accepted);
  return problems;
}

}  // namespace

Manifest read_manifest(const fs::path& folder) {
  std::string text;
  try_again([&] {
    const auto file = open_beneath(folder, kManifestName);
    if (file.size() > manifest_limit(bytes_of_files(folder))) throw IoError("it is too large");
    text.resize(file.size());
    file.read_at(0, std::as_writable_bytes(std::span(text)));
  });
  return parse_manifest(text, "its text");
}

std::vector<Problem> verify(const fs::path& folder, Manifest* manifest, const Share& share) {
  return verify_files(folder, manifest, share, [](const FileRecord&) { return true; });
}

std::vector<Problem> verify_model(const fs::path& folder) {
  return verify_files(folder, nullptr, {}, [](const FileRecord& record) {
    return !is_layout_name(fs::path(record.name).filename().string(), kOptimizerStem);
  });
}

}  // namespace skein::checkpoint
