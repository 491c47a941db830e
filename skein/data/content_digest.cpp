// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/content_digest.h"

#include <algorithm>
#include <vector>

#include "skein/core/hash.h"
#include "skein/core/parallel.h"
#include "skein/core/stop_signals.h"

namespace skein::data {

void ChunkedDigest::add(std::span<const std::byte> chunk) { digests_ += digest(chunk); }

std::string ChunkedDigest::value() const { return digest(digests_); }

std::string content_digest(const fs::path& path, uint64_t offset, int threads,
                           const std::function<void(uint64_t)>& on_read) {
  const auto file = File::open_to_read(path);
  const uint64_t size = file.size() - std::min(offset, file.size());
  const auto chunks = static_cast<int64_t>((size + kDigestChunk - 1) / kDigestChunk);
  std::vector<std::string> digests(static_cast<size_t>(chunks));
  for_each_index(chunks, threads, [&](int64_t i) {
    end_if_stop_waits();
    const uint64_t begin = static_cast<uint64_t>(i) * kDigestChunk;
    std::vector<std::byte> bytes(std::min(kDigestChunk, size - begin));
    file.read_at(offset + begin, bytes);
    digests[static_cast<size_t>(i)] = digest(bytes);
    on_read(bytes.size());
  });
  std::string all;
  for (const auto& one : digests) all += one;
  return digest(all);
}

}  // namespace skein::data
