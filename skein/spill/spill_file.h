// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A file without a name, on a local disk, that holds long arrays between two uses.
//
//   SpillFile file(nvme_path, bytes);
//   const auto ticket = file.read(offset, memory);  // returns at once
//   …                                               // compute something else
//   file.wait(ticket);                              // now the bytes are there, and are right
//
// It has its size and its room on the disk from the beginning, and reads as zeros. Nobody else can
// open it, and no crash leaves it behind: its name is removed before anything is written. It is as
// mortal as memory: what must survive is saved elsewhere.
//
// The file is a row of blocks of `block_bytes`; a transfer is a run of whole blocks (the last block
// of a file may be shorter). The checksum of each block is kept in memory when it is written and
// compared when it is read, so a disk that forgets, mixes up or changes a block is found out before
// the bytes are used. What a PlainAccess has written is remembered when it ends. Blocks that were
// not written since the beginning are not compared.
//
// One thread at a time calls, and a thread that has started a transfer lives until that has ended
// (the kernel cancels what it had under way). Memory of transfers is the caller's (pinned, if it
// likes), aligned to kAlignment, and stays untouched and in place until wait() has returned.
// Transfers that are under way together and touch the same bytes must all be reads.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/spill/engine.h"

namespace skein::spill {

struct SpillOptions {
  uint64_t block_bytes = 64 << 10;  // of one checksum; a multiple of kAlignment
  uint64_t request_bytes = 0;  // of one request, rounded up to kAlignment; 0: a transfer is one
  unsigned depth = 16;         // requests that the disk has at once
  unsigned threads = 0;        // that make them, without io_uring; 0: as many as `depth`
  bool direct = true;          // O_DIRECT, where the file system allows it
  EngineKind engine = EngineKind::kAuto;
  std::string folder_key = "nvme_path";  // what a user gives another folder with
};

// A transfer of about this size is worth its way: larger ones gain nothing.
constexpr uint64_t kUsualTransfer = 1 << 20;

class SpillFile {
 public:
  using Ticket = uint64_t;

  // `bytes` is a multiple of kAlignment, and not 0. Throws DiskFull with the bytes needed and free,
  // IoError when the folder is missing or may not be written.
  SpillFile(const fs::path& folder, uint64_t bytes, SpillOptions options = {});
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;
  ~SpillFile();  // waits for what is under way

  // Both start a transfer of whole blocks and return. Throw IoError when the file is not of its
  // size any more.
  Ticket read(uint64_t offset, std::span<std::byte> memory);
  Ticket write(uint64_t offset, std::span<const std::byte> memory);
  // Until that transfer is done; once for each ticket. Throws IoError when it failed, when the file
  // ended too early, and when what was read is not what was written: its memory is then of no use.
  void wait(Ticket ticket);
  void wait_all();

  uint64_t size() const { return size_; }
  uint64_t block_bytes() const { return options_.block_bytes; }
  bool is_direct() const { return is_direct_; }
  bool uses_io_uring() const { return uses_io_uring_; }
  // The one that it had.
  const fs::path& path() const { return path_; }

  // The file as memory, at this address for the file's life: for a tensor that aliases it. It can
  // be touched within a PlainAccess; outside of one that is a SIGSEGV.
  std::span<std::byte> memory() const { return {map_, size_}; }

  enum class Use { kRead, kWrite };

  // While it lives, memory() may be touched, and no transfer is started.
  //
  // Direct transfers pass the page cache by, memory() lies in it, and nothing promises that one
  // side sees the other's bytes while both are used. So they are never used at the same time:
  // beginning waits for all transfers (the kernel has dropped the pages of what they wrote), the
  // end writes back what was changed (msync), drops the pages, and takes the memory away. A failure
  // of the end is thrown by every later call to the file. A file that is cut short meanwhile is a
  // SIGBUS.
  class PlainAccess {
   public:
    PlainAccess(SpillFile& file, Use use) : file_(file) { file_.begin_plain_access(use); }
    ~PlainAccess() { file_.end_plain_access(); }
    PlainAccess(const PlainAccess&) = delete;
    PlainAccess& operator=(const PlainAccess&) = delete;

    // Compares all blocks with what transfers wrote; reads the whole file. For kRead.
    void verify() const;

   private:
    SpillFile& file_;
  };

 private:
  struct UnderWay {
    Transfer whole;
    std::vector<Transfer> requests;  // what the engine has of it
  };

  Ticket start(Transfer transfer);
  std::vector<Transfer> requests_of(const Transfer& whole) const;
  void check_can_start(const Transfer& transfer) const;
  void check_size() const;
  void remember(const Transfer& transfer);
  void compare(uint64_t offset, std::span<const std::byte> memory) const;
  void begin_plain_access(Use use);
  void end_plain_access() noexcept;
  void remember_all();
  void drop_pages() const;
  [[noreturn]] void fail(const Transfer& transfer) const;
  void throw_late_failure() const;

  SpillOptions options_;
  fs::path path_;
  uint64_t size_;
  File file_;
  bool is_direct_ = false, uses_io_uring_ = false;
  std::byte* map_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::map<Ticket, UnderWay> under_way_;
  Ticket next_ticket_ = 1;
  std::vector<std::optional<uint64_t>> checksums_;  // of each block; none: not known
  std::optional<Use> plain_use_;                    // of the PlainAccess that lives
  std::exception_ptr late_failure_;                 // of the end of one
};

}  // namespace skein::spill
