// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <tuple>

#include "skein/core/file_system.h"
#include "skein/core/system_failure.h"
#include "skein/spill/transfer.h"

namespace skein::spill {
namespace {

constexpr uint64_t kPage = kAlignment;
constexpr uint64_t kLargePage = 2 << 20;   // of a processor
constexpr uint64_t kLeastRead = 64 << 10;  // below, a copy costs less than a wait
constexpr size_t kPieceBytes = size_t{4} << 20;

uint64_t page_before(uint64_t place) { return place / kPage * kPage; }
uint64_t page_behind(uint64_t place) { return page_before(place + kPage - 1); }

// While it lives, transfers through the descriptor pass the page cache by.
class DirectScope {
 public:
  explicit DirectScope(const File& file, bool is_wanted = true)
      : descriptor_(file.descriptor()), flags_(::fcntl(descriptor_, F_GETFL)) {
    holds_ = is_wanted && flags_ >= 0 && ::fcntl(descriptor_, F_SETFL, flags_ | O_DIRECT) == 0;
  }
  ~DirectScope() {
    if (holds_) ::fcntl(descriptor_, F_SETFL, flags_);
  }
  DirectScope(const DirectScope&) = delete;
  DirectScope& operator=(const DirectScope&) = delete;

  bool holds() const { return holds_; }

 private:
  int descriptor_, flags_;
  bool holds_ = false;
};

// Up to where? Ends with the file, and at the first failure, which is found again without O_DIRECT
// or was that of a file system that has none.
uint64_t read_pages(const File& file, uint64_t offset, std::span<std::byte> pages) {
  while (!pages.empty()) {
    const auto count = file_system().read(file.descriptor(), pages, offset);
    if (count <= 0) break;
    offset += static_cast<uint64_t>(count);
    if (static_cast<uint64_t>(count) % kPage != 0) break;
    pages = pages.subspan(static_cast<size_t>(count));
  }
  return offset;
}

// False where the file system cannot: some say so at the first write.
bool write_pages(const File& file, uint64_t offset, std::span<const std::byte> pages) {
  const DirectScope scope(file);
  if (!scope.holds()) return false;
  try {
    file.write_at(offset, pages);
    return true;
  } catch (const SystemFailure& failure) {
    if (failure.code != EINVAL) throw;
    return false;
  }
}

}  // namespace

std::pair<PageShelf::Pages, size_t> PageShelf::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(free_, [&](const auto& one) { return one.second >= bytes; });
  if (found == free_.end()) return {};
  auto taken = std::move(*found);
  free_.erase(found);
  return taken;
}

void PageShelf::put(Pages pages, size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_.emplace_back(std::move(pages), bytes);
}

PagedMemory::PagedMemory(size_t bytes, std::shared_ptr<PageShelf> shelf)
    : shelf_(std::move(shelf)) {
  if (shelf_) std::tie(pages_, bytes_) = shelf_->take(bytes);
  if (pages_) return;
  bytes_ = page_behind(std::max<size_t>(bytes, 1));
  const bool is_large = bytes_ >= kLargePage;
  const uint64_t alignment = is_large ? kLargePage : kPage;  // which divides the size, as C asks
  bytes_ = (bytes_ + alignment - 1) / alignment * alignment;
  pages_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, bytes_)));
  if (!pages_) throw std::bad_alloc();
  if (is_large) ::madvise(pages_.get(), bytes_, MADV_HUGEPAGE);  // where it can be had
}

PagedMemory& PagedMemory::operator=(PagedMemory&& other) noexcept {
  std::swap(shelf_, other.shelf_);
  std::swap(pages_, other.pages_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PagedMemory::~PagedMemory() {
  if (shelf_ && pages_) shelf_->put(std::move(pages_), bytes_);
}

FileRun read_run(const File& file, uint64_t offset, uint64_t bytes,
                 std::shared_ptr<PageShelf> shelf) {
  const uint64_t begin = page_before(offset), end = page_behind(offset + bytes);
  FileRun run{.memory = PagedMemory(end - begin, std::move(shelf)), .bytes = {}};
  run.bytes = {run.memory.data() + (offset - begin), bytes};
  uint64_t done = begin;
  if (const DirectScope scope(file, bytes >= kLeastRead); scope.holds()) {
    done = read_pages(file, begin, {run.memory.data(), end - begin});
  }
  const uint64_t seen = std::clamp(done, offset, offset + bytes) - offset;
  file.read_at(offset + seen, run.bytes.subspan(seen));
  return run;
}

RunWriter::RunWriter(const File& file, uint64_t begin)
    : file_(file),
      filling_{.memory = PagedMemory(kPieceBytes), .offset = page_before(begin)},
      written_{.memory = PagedMemory(kPieceBytes)} {
  filling_.begin = filling_.end = begin - filling_.offset;
  thread_.emplace([this] { run(); });
}

RunWriter::~RunWriter() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

void RunWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto count = std::min(bytes.size(), kPieceBytes - filling_.end);
    std::memcpy(filling_.memory.data() + filling_.end, bytes.data(), count);
    filling_.end += count;
    bytes = bytes.subspan(count);
    if (filling_.end == kPieceBytes) hand_over();
  }
}

void RunWriter::write_elsewhere(uint64_t offset, std::span<const std::byte> bytes) {
  std::unique_lock lock(mutex_);
  wait_until_written(lock);
  file_.write_at(offset, bytes);
}

void RunWriter::hand_over() {
  std::unique_lock lock(mutex_);
  wait_until_written(lock);
  std::swap(filling_, written_);
  filling_.offset = written_.offset + kPieceBytes;
  filling_.begin = filling_.end = 0;
  is_writing_ = true;
  changed_.notify_all();
}

void RunWriter::wait_until_written(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !is_writing_; });
  if (failure_) std::rethrow_exception(failure_);
}

void RunWriter::finish() {
  hand_over();
  std::unique_lock lock(mutex_);
  wait_until_written(lock);
}

void RunWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_writing_ || ended_; });
    if (!is_writing_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      write(written_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    is_writing_ = false;
    changed_.notify_all();
  }
}

void RunWriter::write(const Piece& piece) {
  const auto part = [&](size_t begin, size_t end) {
    return std::span<const std::byte>(piece.memory.data() + begin, end - begin);
  };
  const auto put = [&](size_t begin, size_t end) {
    file_.write_at(piece.offset + begin, part(begin, end));
  };
  const size_t first = page_behind(piece.begin), last = page_before(piece.end);
  if (first < last && is_direct_) {
    is_direct_ = write_pages(file_, piece.offset + first, part(first, last));
    if (is_direct_) {
      put(piece.begin, first);
      return put(last, piece.end);
    }
  }
  put(piece.begin, piece.end);
}

}  // namespace skein::spill
