// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Is this the same content? A digest that several threads can work on.
//
// Content is cut into chunks of 16 MiB; its digest is that of its chunks' digests. Part of the
// names of prepared data: a change makes all of it stale.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "skein/core/file.h"

namespace skein::data {

constexpr uint64_t kDigestChunk = uint64_t{16} << 20;

// Of the file's bytes from `offset` on. `on_read` is told how many were read, from any thread.
std::string content_digest(const fs::path& path, uint64_t offset, int threads,
                           const std::function<void(uint64_t)>& on_read);

// The same for content that comes in order, chunk by chunk: each kDigestChunk long but the last.
class ChunkedDigest {
 public:
  void add(std::span<const std::byte> chunk);
  std::string value() const;

 private:
  std::string digests_;
};

}  // namespace skein::data
