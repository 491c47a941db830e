// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do long runs of bytes get to a file and back that nobody will look at again soon?
//
// Past the page cache (O_DIRECT), whose copies cost more than disks do; through it where the file
// system has no other way, and for the few bytes before and behind whole pages. What is written is
// as durable as by File::write_at(): not at all before File::sync().

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "skein/core/file.h"

namespace skein::spill {

// Where memory lies until it is taken again: new pages cost more than reading into them does.
// Thread-safe.
class PageShelf {
 public:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  using Pages = std::unique_ptr<std::byte, Free>;

  // What has room for so many bytes; null when there is none.
  std::pair<Pages, size_t> take(size_t bytes);
  void put(Pages pages, size_t bytes);

 private:
  std::mutex mutex_;
  std::vector<std::pair<Pages, size_t>> free_;
};

// Memory that begins at a page. Its content is anything.
class PagedMemory {
 public:
  PagedMemory() = default;
  // From the shelf, and back to it, if there is one.
  explicit PagedMemory(size_t bytes, std::shared_ptr<PageShelf> shelf = nullptr);
  PagedMemory(PagedMemory&&) = default;
  PagedMemory& operator=(PagedMemory&& other) noexcept;
  ~PagedMemory();

  std::byte* data() const { return pages_.get(); }

 private:
  std::shared_ptr<PageShelf> shelf_;
  PageShelf::Pages pages_;
  size_t bytes_ = 0;
};

// A run of a file.
struct FileRun {
  PagedMemory memory;
  std::span<std::byte> bytes;  // of it
};

// As File::read_at(). Nobody else may be using the descriptor.
FileRun read_run(const File& file, uint64_t offset, uint64_t bytes,
                 std::shared_ptr<PageShelf> shelf = nullptr);

// Writes a run piece by piece, from one place of a file on: a thread writes what has been appended
// while more is made. The file outlives it, and nobody else uses its descriptor until finish().
class RunWriter {
 public:
  RunWriter(const File& file, uint64_t begin);
  // What is under way ends. Without finish() the rest is not written.
  ~RunWriter();
  RunWriter(const RunWriter&) = delete;
  RunWriter& operator=(const RunWriter&) = delete;

  // Throws what writing threw, of these bytes or of earlier ones.
  void append(std::span<const std::byte> bytes);
  // A few other bytes of the file.
  void write_elsewhere(uint64_t offset, std::span<const std::byte> bytes);
  // All has been written when it returns; the last call.
  void finish();

 private:
  // From a multiple of the page size on; its first bytes may belong to others.
  struct Piece {
    PagedMemory memory;
    uint64_t offset = 0;        // in the file
    size_t begin = 0, end = 0;  // of what is to be written
  };

  void hand_over();
  void wait_until_written(std::unique_lock<std::mutex>& lock);
  void run();
  void write(const Piece& piece);

  const File& file_;
  bool is_direct_ = true;  // until the file system refuses
  Piece filling_, written_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_writing_ = false, ended_ = false;
  std::exception_ptr failure_;
  std::optional<std::jthread> thread_;  // last: it uses the others
};

}  // namespace skein::spill
