// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Files and folders, with errors that name them.
//
// Everything that must survive a crash goes through here, so that one place knows about fsync; the
// system calls themselves are those of core/file_system.h, which tests replace.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace skein {

namespace fs = std::filesystem;

// Owns a file descriptor.
//
// Whoever may write a folder of ours could plant a link, a pipe or a file under a name that we are
// about to use: what we write goes into a file that is new, or into a plain one that is ours.
class File {
 public:
  enum class Access { kWrite, kReadWrite };

  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept;
  ~File();

  static File open_to_read(const fs::path& path);  // regular files only: waits for no pipe
  // A new file. What has its name goes, and is not written to.
  static File create(const fs::path& path, Access access = Access::kWrite);
  // Plain files only: through no link. Their content stays.
  static File open_to_write(const fs::path& path);
  static File open_or_create(const fs::path& path);
  static File open_to_append(const fs::path& path);  // or makes it
  // Where a user said: through links, and into devices.
  static File overwrite(const fs::path& path);

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  int release() { return std::exchange(descriptor_, -1); }

  uint64_t size() const;
  // Whole transfers or IoError; a file shorter than asked for is an IoError too.
  void read_at(uint64_t offset, std::span<std::byte> out) const;
  void write_at(uint64_t offset, std::span<const std::byte> bytes) const;
  void resize(uint64_t size) const;
  // resize(), and takes all that room on the disk now, where the file system can.
  void reserve(uint64_t size) const;
  void sync() const;

 private:
  int descriptor_ = -1;
};

// Through File::read_at(); for tests, in which a rank is a thread.
uint64_t bytes_read_by_this_thread();

// PATH.tmp- and 16 random hexadecimal digits.
fs::path temporary_beside(const fs::path& path);

// Throws IoError when the file is larger than `limit`: no caller reads what it cannot hold.
std::string read_file(const fs::path& path, uint64_t limit = uint64_t{1} << 30);
// Temporary sibling, fsync, rename, fsync of the folder: readers see the old file or the new one.
void write_file_atomically(const fs::path& path, std::string_view content);
void sync_directory(const fs::path& path);
// Makes the folders of `path` that are missing and syncs each one's parent.
void make_directories(const fs::path& path);
// A new one: nothing may have its name yet, not even a link to a folder.
void make_new_directory(const fs::path& path);
// Points `link` at `target` atomically.
void replace_symlink(const fs::path& link, const fs::path& target);
// Durable once the folder is synced.
void rename_path(const fs::path& from, const fs::path& to);
// Swaps the two in one move. False where the file system cannot.
bool exchange_paths(const fs::path& one, const fs::path& other);
// A file, a link, or a folder with all that it holds; nothing there is fine.
void remove_tree(const fs::path& path);

}  // namespace skein
