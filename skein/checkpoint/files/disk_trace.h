// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: what was done to a disk, and what a crash may leave of it.
//
// A DiskRecorder does everything for real and notes it. disk_after() builds the tree that a crash
// leaves of the first `length` operations, under rules stricter than any file system in use:
//
//   - Bytes and lengths of a file are certain once the descriptor that wrote them was synced
//     (not another one: on a network disk each writer is a machine of its own).
//   - A name (created, renamed, removed) is certain once its folder was synced. Syncing a file does
//     not make its name certain.
//   - What is not certain may have happened or not, in any combination; a write may have happened
//     for its first bytes only, or have left zeros. One rename happens whole or not at all.

#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/core/file_system.h"

namespace skein::checkpoint {

struct DiskOperation {
  enum class Kind {
    kCreate,  // of a file
    kMakeFolder,
    kSymlink,
    kRename,
    kExchange,
    kRemove,
    kWrite,
    kTruncate,
    kSyncFile,
    kSyncFolder,
  };
  Kind kind = Kind::kCreate;
  int folder = 0;     // node whose names change, or that is synced
  std::string name;   // in that folder
  std::string other;  // the other name of a rename, the target of a link
  int node = 0;       // that the name leads to, or whose bytes change
  int other_node = 0;
  int handle = 0;  // which opening of the file
  uint64_t offset = 0;
  std::string bytes;
  uint64_t size = 0;

  std::string text() const;
};

// Records what happens below `root`, which exists and is certain. Thread-safe.
class DiskRecorder final : public FileSystem {
 public:
  explicit DiskRecorder(fs::path root) : root_(std::move(root)) {}

  std::vector<DiskOperation> operations;
  bool can_exchange = true;  // false: as on a file system without RENAME_EXCHANGE

  int open(const fs::path& path, int flags) override;
  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override;
  int truncate(int descriptor, uint64_t size) override;
  int sync(int descriptor) override;
  int rename(const fs::path& from, const fs::path& to, unsigned flags) override;
  int make_symlink(const fs::path& target, const fs::path& link) override;
  int make_directory(const fs::path& path) override;
  int remove(const fs::path& path) override;

 private:
  using Names = std::map<std::string, int>;
  struct Opened {
    int handle = 0;
    int node = -1;  // outside of root
  };

  int find(const fs::path& path) const;  // -1 when it is not there
  DiskOperation named(DiskOperation::Kind kind, const fs::path& path, int node) const;

  const fs::path root_;
  std::mutex mutex_;
  std::map<int, Names> folders_{{0, {}}};
  std::map<int, Opened> opened_;  // by descriptor
  int num_nodes_ = 1;
  int num_handles_ = 0;
};

// What may become of an operation that is not certain.
enum class Fate { kDone, kLost, kHalf, kZero };

// Which of the first `length` operations are certain?
std::vector<bool> certain(const std::vector<DiskOperation>& operations, size_t length);

// Path below the root: content of a file, "-> TARGET" of a link; folders end in a slash.
using DiskTree = std::map<std::string, std::string>;

// `fates` has an entry per operation; those of certain ones are not looked at.
DiskTree disk_after(const std::vector<DiskOperation>& operations, const std::vector<Fate>& fates,
                    const std::vector<bool>& is_certain, std::mt19937_64& random);

void write_tree(const DiskTree& tree, const fs::path& root);

}  // namespace skein::checkpoint
