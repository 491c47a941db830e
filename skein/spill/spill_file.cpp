// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/spill_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/spill/checksum.h"

namespace skein::spill {
namespace {

constexpr const char* kLost =
    "; what it held is lost: start the run again, it continues from its newest checkpoint";

fs::path choose_path(const fs::path& folder) {
  std::random_device random;
  return folder / fmt::format("skein-spill-{:08x}{:08x}", random(), random());
}

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& key, int code) {
  const auto elsewhere = fmt::format("give {}=FOLDER on a local disk", key);
  if (code == ENOENT) {
    throw IoError(fmt::format("there is no folder {}: make it, or {}", folder.string(), elsewhere));
  }
  throw IoError(fmt::format("cannot make a file in {}: {}: {}", folder.string(),
                            std::strerror(code), elsewhere));
}

// Readable by nobody else, in no folder: what it held must not outlive this process.
File create_nameless(const fs::path& path, const std::string& key) {
  // Without a name from the beginning, where the file system can.
  File unnamed(::open(path.parent_path().c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  if (unnamed) return unnamed;
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  File file(::open(path.c_str(), kFlags, 0600));
  if (!file) refuse_folder(path.parent_path(), key, errno);
  if (file_system().remove(path) != 0) throw_errno("cannot remove the name of " + path.string());
  return file;
}

// As the kernel calls a file without a name: what /proc shows of it, for messages.
fs::path name_of(const File& file, const fs::path& otherwise) {
  std::error_code ignored;
  const auto link = fs::read_symlink(fmt::format("/proc/self/fd/{}", file.descriptor()), ignored);
  const auto text = link.string();
  const auto end = text.rfind(" (deleted)");
  return end == std::string::npos ? otherwise : fs::path(text.substr(0, end));
}

[[noreturn]] void refuse_full(const fs::path& folder, const std::string& key, uint64_t bytes,
                              uint64_t available) {
  throw DiskFull(fmt::format(
      "{} has no room for {} ({} bytes): {} are free ({} bytes): free some, or give {}=FOLDER on "
      "another disk",
      folder.string(), shown_bytes(bytes), bytes, shown_bytes(available), available, key));
}

// Where room cannot be reserved it is written to: a mapping of a file without it would end the
// process by SIGBUS when the disk is full.
void fill_with_zeros(const File& file, uint64_t bytes) {
  const std::vector<std::byte> zeros(std::min<uint64_t>(bytes, 1 << 20));
  for (uint64_t offset = 0; offset < bytes; offset += zeros.size()) {
    file.write_at(offset, std::span(zeros).first(std::min<uint64_t>(zeros.size(), bytes - offset)));
  }
}

// Takes all the room now, so that a full disk is known before it is needed. It is compared first:
// an allocation that must fail would fill the disk for a moment, and others may be writing.
void reserve(const File& file, const fs::path& folder, uint64_t bytes, const std::string& key) {
  std::error_code unknown;
  const auto space = fs::space(folder, unknown);
  const uint64_t available = unknown ? 0 : space.available;
  if (!unknown && available < bytes) refuse_full(folder, key, bytes, available);
  if (file_system().allocate(file.descriptor(), bytes) != 0) {
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
      refuse_full(folder, key, bytes, available);
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
      throw_errno(fmt::format("cannot make room for {} bytes in {}", bytes, folder.string()));
    }
    fill_with_zeros(file, bytes);
  }
  file.resize(bytes);
}

// Some file systems accept O_DIRECT and refuse the first write, some ask for larger sectors.
bool make_direct(const File& file) {
  const int descriptor = file.descriptor(), flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) return false;
  alignas(kAlignment) static const std::byte zeros[kAlignment] = {};
  if (::pwrite(descriptor, zeros, sizeof zeros, 0) == sizeof zeros) return true;
  ::fcntl(descriptor, F_SETFL, flags);
  return false;
}

std::byte* map_file(const File& file, uint64_t bytes, const fs::path& path) {
  void* map = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file.descriptor(), 0);
  if (map == MAP_FAILED) throw_errno(fmt::format("cannot map {}", path.string()));
  ::madvise(map, bytes, MADV_SEQUENTIAL);  // saved and restored from front to back
  return static_cast<std::byte*>(map);
}

bool overlap(const Transfer& one, const Transfer& other) {
  return one.offset < other.offset + other.memory.size() &&
         other.offset < one.offset + one.memory.size();
}

}  // namespace

SpillFile::SpillFile(const fs::path& folder, uint64_t bytes, SpillOptions options)
    : options_(std::move(options)),
      path_(choose_path(folder)),
      size_(bytes),
      file_(create_nameless(path_, options_.folder_key)) {
  SKEIN_CHECK(bytes > 0 && bytes % kAlignment == 0, fmt::format("a file of {} bytes", bytes));
  SKEIN_CHECK(block_bytes() > 0 && block_bytes() % kAlignment == 0 && options_.depth > 0,
              fmt::format("blocks of {} bytes, depth {}", block_bytes(), options_.depth));
  path_ = name_of(file_, path_);
  reserve(file_, folder, bytes, options_.folder_key);
  is_direct_ = options_.direct && make_direct(file_);
  checksums_.resize((bytes + block_bytes() - 1) / block_bytes());
  auto chosen =
      make_engine(file_.descriptor(),
                  {.depth = options_.depth, .threads = options_.threads, .kind = options_.engine});
  engine_ = std::move(chosen.engine);
  uses_io_uring_ = chosen.is_uring;
  map_ = map_file(file_, bytes, path_);
}

SpillFile::~SpillFile() {
  try {
    for (auto& [ticket, transfer] : under_way_) {
      for (auto& request : transfer.requests) engine_->finish(request);
    }
  } catch (const IoError&) {
    // Nobody asks for these bytes any more.
  }
  ::munmap(map_, size_);
}

SpillFile::Ticket SpillFile::read(uint64_t offset, std::span<std::byte> memory) {
  return start({.kind = Transfer::Kind::kRead, .offset = offset, .memory = memory});
}

SpillFile::Ticket SpillFile::write(uint64_t offset, std::span<const std::byte> memory) {
  // Only read from: one struct serves both ways.
  auto* first = const_cast<std::byte*>(memory.data());
  return start(
      {.kind = Transfer::Kind::kWrite, .offset = offset, .memory = {first, memory.size()}});
}

SpillFile::Ticket SpillFile::start(Transfer transfer) {
  throw_late_failure();
  check_can_start(transfer);
  check_size();
  const Ticket ticket = next_ticket_++;
  auto& started = under_way_[ticket] = {transfer, requests_of(transfer)};
  for (auto& request : started.requests) engine_->start(request);
  // While the disk has it: nobody changes these bytes before wait().
  if (transfer.kind == Transfer::Kind::kWrite) remember(transfer);
  return ticket;
}

std::vector<Transfer> SpillFile::requests_of(const Transfer& whole) const {
  if (options_.request_bytes == 0) return {whole};
  const uint64_t most = (options_.request_bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::vector<Transfer> requests;
  for (uint64_t at = 0; at < whole.memory.size(); at += most) {
    const auto bytes = std::min<uint64_t>(most, whole.memory.size() - at);
    requests.push_back({.kind = whole.kind,
                        .offset = whole.offset + at,
                        .memory = whole.memory.subspan(at, bytes)});
  }
  return requests;
}

void SpillFile::check_can_start(const Transfer& transfer) const {
  const uint64_t end = transfer.offset + transfer.memory.size();
  const bool whole_blocks = !transfer.memory.empty() && transfer.offset % block_bytes() == 0 &&
                            (end % block_bytes() == 0 || end == size_) && end <= size_;
  SKEIN_CHECK(whole_blocks, fmt::format("bytes {} to {} of {}, in blocks of {}", transfer.offset,
                                        end, size_, block_bytes()));
  SKEIN_CHECK(reinterpret_cast<uintptr_t>(transfer.memory.data()) % kAlignment == 0,
              "memory of a transfer is not aligned");
  SKEIN_CHECK(!plain_use_, "a transfer while the file is used as memory");
  for (const auto& [ticket, other] : under_way_) {
    const bool reads =
        transfer.kind == Transfer::Kind::kRead && other.whole.kind == Transfer::Kind::kRead;
    SKEIN_CHECK(reads || !overlap(transfer, other.whole),
                fmt::format("two transfers at byte {}", transfer.offset));
  }
}

void SpillFile::check_size() const {
  const uint64_t found = file_.size();
  if (found == size_) return;
  throw IoError(fmt::format("{} has {} bytes, expected {}: it was cut short while in use{}",
                            path_.string(), found, size_, kLost));
}

void SpillFile::wait(Ticket ticket) {
  throw_late_failure();
  const auto entry = under_way_.find(ticket);
  SKEIN_CHECK(entry != under_way_.end(), fmt::format("no transfer has ticket {}", ticket));
  // All of them, whatever one has met: the caller's memory is free after this.
  for (auto& request : entry->second.requests) engine_->finish(request);
  const auto [whole, requests] = std::move(entry->second);
  under_way_.erase(entry);
  for (const auto& request : requests) {
    if (request.failure != 0 || request.ended) fail(request);
  }
  if (whole.kind == Transfer::Kind::kRead) compare(whole.offset, whole.memory);
}

void SpillFile::wait_all() {
  while (!under_way_.empty()) wait(under_way_.begin()->first);
}

void SpillFile::fail(const Transfer& transfer) const {
  const bool reads = transfer.kind == Transfer::Kind::kRead;
  if (transfer.ended) {
    throw IoError(
        fmt::format("{} ended at byte {}, expected {} bytes: it was cut short while in "
                    "use{}",
                    path_.string(), transfer.rest_offset(), size_, kLost));
  }
  const auto message =
      fmt::format("cannot {} {} bytes at byte {} of {}: {} (`dmesg` tells more of the disk){}",
                  reads ? "read" : "write", transfer.memory.size(), transfer.offset, path_.string(),
                  std::strerror(transfer.failure), kLost);
  if (transfer.failure == ENOSPC || transfer.failure == EDQUOT) throw DiskFull(message);
  throw IoError(message);
}

void SpillFile::remember(const Transfer& transfer) {
  for (uint64_t at = 0; at < transfer.memory.size(); at += block_bytes()) {
    const uint64_t block = (transfer.offset + at) / block_bytes();
    const auto bytes = std::min<uint64_t>(block_bytes(), transfer.memory.size() - at);
    checksums_[block] = checksum(block, transfer.memory.subspan(at, bytes));
  }
}

void SpillFile::compare(uint64_t offset, std::span<const std::byte> memory) const {
  for (uint64_t at = 0; at < memory.size(); at += block_bytes()) {
    const uint64_t block = (offset + at) / block_bytes();
    if (!checksums_[block]) continue;
    const auto bytes = memory.subspan(at, std::min<uint64_t>(block_bytes(), memory.size() - at));
    const uint64_t found = checksum(block, bytes);
    if (found == *checksums_[block]) continue;
    throw IoError(fmt::format(
        "{} does not hold what was written there: {} bytes at byte {} have checksum {:016x}, "
        "expected {:016x}; disk or memory changes data (`dmesg` may tell more){}",
        path_.string(), bytes.size(), offset + at, found, *checksums_[block], kLost));
  }
}

// Of what was put there as into memory. (Where that has left memory meanwhile, it is read again.)
void SpillFile::remember_all() {
  check_size();
  for (uint64_t block = 0; block < checksums_.size(); ++block) {
    const uint64_t at = block * block_bytes();
    checksums_[block] = checksum(block, {map_ + at, std::min<uint64_t>(block_bytes(), size_ - at)});
  }
}

void SpillFile::begin_plain_access(Use use) {
  throw_late_failure();
  SKEIN_CHECK(!plain_use_, "the file is used as memory already");
  wait_all();
  check_size();
  const int protection = use == Use::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  if (::mprotect(map_, size_, protection) != 0) {
    throw_errno(fmt::format("cannot use {} as memory", path_.string()));
  }
  plain_use_ = use;
}

void SpillFile::end_plain_access() noexcept {
  try {
    const auto use = std::exchange(plain_use_, std::nullopt);
    if (use == Use::kWrite) remember_all();
    // Without O_DIRECT transfers use the same pages.
    const bool must_reach_disk = use == Use::kWrite && is_direct_;
    if (must_reach_disk && ::msync(map_, size_, MS_SYNC) != 0) {
      throw_errno(fmt::format("cannot write {} back to its disk", path_.string()));
    }
    drop_pages();
  } catch (...) {
    late_failure_ = std::current_exception();
  }
}

// Out of the mapping first: pages that are mapped stay in the cache.
void SpillFile::drop_pages() const {
  ::madvise(map_, size_, MADV_DONTNEED);
  if (::mprotect(map_, size_, PROT_NONE) != 0) {
    throw_errno(fmt::format("cannot take the memory of {} away", path_.string()));
  }
  if (is_direct_) ::posix_fadvise(file_.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

void SpillFile::throw_late_failure() const {
  if (late_failure_) std::rethrow_exception(late_failure_);
}

void SpillFile::PlainAccess::verify() const { file_.compare(0, file_.memory()); }

}  // namespace skein::spill
