// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/source_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/parallel.h"
#include "skein/core/progress.h"
#include "skein/core/stop_signals.h"
#include "skein/data/content_digest.h"
#include "skein/data/token_file.h"

namespace skein::data {
namespace {

uint32_t largest_token(const fs::path& path, int threads) {
  const auto region = locate_tokens(path);
  const TokenArray tokens(std::span(&region, 1));
  constexpr int64_t kRange = int64_t{1} << 23;
  std::vector<uint32_t> largest(static_cast<size_t>((tokens.size() + kRange - 1) / kRange));
  for_each_index(static_cast<int64_t>(largest.size()), threads, [&](int64_t i) {
    end_if_stop_waits();
    largest[static_cast<size_t>(i)] =
        tokens.largest(i * kRange, std::min((i + 1) * kRange, tokens.size()));
  });
  return largest.empty() ? 0 : *std::ranges::max_element(largest);
}

// A file that was written a moment ago may be written again without its time changing.
bool is_settled(const FileIdentity& identity) {
  using std::chrono::system_clock;
  const auto now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(system_clock::now().time_since_epoch());
  return now.count() - identity.modified_ns > 2'000'000'000;
}

}  // namespace

std::vector<FileFacts> facts_of(const Sources& sources, FileIndex& index, int threads) {
  std::vector<FileIdentity> identities;
  uint64_t unknown_bytes = 0;
  for (const auto& path : sources.files) {
    identities.push_back(FileIdentity::of(path));
    if (!index.find(identities.back())) unknown_bytes += identities.back().size;
  }
  Progress progress("reading " + counted(sources.files.size(), "file"), unknown_bytes);
  std::vector<FileFacts> facts;
  std::map<FileIdentity, FileFacts> news;
  for (size_t i = 0; i < sources.files.size(); ++i) {
    const auto& path = sources.files[i];
    if (const auto known = index.find(identities[i])) {
      facts.push_back(*known);
      continue;
    }
    FileFacts fact{
        .digest = content_digest(path, 0, threads, [&](uint64_t bytes) { progress.add(bytes); })};
    if (sources.kind == SourceKind::kTokens) fact.largest_token = largest_token(path, threads);
    if (FileIdentity::of(path) != identities[i]) {
      throw IoError(fmt::format("{} changed while it was read", path.string()));
    }
    if (is_settled(identities[i])) news[identities[i]] = fact;
    facts.push_back(std::move(fact));
  }
  index.remember(news);
  return facts;
}

std::string prepared_key(PreparedKind kind, const Sources& sources,
                         const std::vector<FileFacts>& facts, const std::string& encoder) {
  auto text = fmt::format("skein {} {}\nencoder {}\n", prepared_name(kind), prepared_version(kind),
                          encoder);
  for (size_t i = 0; i < facts.size(); ++i) {
    text += fmt::format("{} {}\n", sources.files[i].extension().string(), facts[i].digest);
  }
  return digest(text);
}

}  // namespace skein::data
