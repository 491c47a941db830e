// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/data_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/hash.h"
#include "skein/core/parallel.h"
#include "skein/core/stop_signals.h"

namespace skein::gradient_features {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{16} << 20;  // part of the format

bool is_digest(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string counted_rows(int64_t rows) { return counted(static_cast<uint64_t>(rows), "row"); }

}  // namespace

std::string file_digest(const fs::path& path) {
  const auto file = File::open_to_read(path);
  const uint64_t size = file.size();
  const auto chunks = static_cast<int64_t>((size + kChunkBytes - 1) / kChunkBytes);
  std::vector<std::string> digests(static_cast<size_t>(chunks));
  for_each_index(chunks, num_threads(0), [&](int64_t i) {
    end_if_stop_waits();
    const uint64_t begin = static_cast<uint64_t>(i) * kChunkBytes;
    std::vector<std::byte> bytes(std::min(kChunkBytes, size - begin));
    file.read_at(begin, bytes);
    digests[static_cast<size_t>(i)] = digest(bytes);
  });
  std::string all;
  for (const auto& one : digests) all += one;
  return digest(all);
}

std::string to_text(const DataFile& file) { return fmt::format("{}:{}", file.rows, file.digest); }

DataFile parse_data_file(std::string_view text) {
  DataFile file;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), file.rows);
  const auto rest = text.substr(static_cast<size_t>(stop - text.data()));
  if (error != std::errc() || file.rows < 0 || !rest.starts_with(':') ||
      !is_digest(rest.substr(1))) {
    throw IoError(fmt::format("'{}' describes no data file", shown(text)));
  }
  file.digest = rest.substr(1);
  return file;
}

std::string to_text(std::span<const DataFile> files) {
  std::string text;
  for (const auto& file : files) text += (text.empty() ? "" : ",") + to_text(file);
  return text;
}

std::vector<DataFile> parse_data_files(std::string_view text) {
  std::vector<DataFile> files;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    files.push_back(parse_data_file(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return files;
}

void require_data_files(std::span<const DataFile> known, std::span<const LineIndex> given,
                        const std::string& about) {
  if (known.size() != given.size()) {
    throw UserError(fmt::format("{} {}, and {} given: name all of them, in their order", about,
                                counted(known.size(), "file"),
                                given.size() == 1 ? "1 is" : fmt::format("{} are", given.size())));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    const DataFile now{given[i].count(), file_digest(given[i].path())};
    if (now == known[i]) continue;
    const auto path = given[i].path().string();
    const auto elsewhere = std::ranges::find(known, now);
    if (elsewhere != known.end()) {
      throw UserError(fmt::format(
          "the files are in another order: {} is number {} of those that {}, and given as number "
          "{}",
          path, elsewhere - known.begin() + 1, about, i + 1));
    }
    throw UserError(fmt::format(
        "{} is not the file that {}: that had {}, this has {}{}; give the file as it was, or "
        "collect its rows again",
        path, about, counted_rows(known[i].rows), counted_rows(now.rows),
        known[i].rows == now.rows ? " and other bytes" : ""));
  }
}

}  // namespace skein::gradient_features
