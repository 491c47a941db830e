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
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept;
  ~File();

  static File open_to_read(const fs::path& path);   // regular files only: waits for no pipe
  static File create(const fs::path& path);         // truncates
  static File open_to_write(const fs::path& path);  // creates, keeps the content

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  int release() { return std::exchange(descriptor_, -1); }

  uint64_t size() const;
  // Whole transfers or IoError; a file shorter than asked for is an IoError too.
  void read_at(uint64_t offset, std::span<std::byte> out) const;
  void write_at(uint64_t offset, std::span<const std::byte> bytes) const;
  void resize(uint64_t size) const;
  void sync() const;

 private:
  int descriptor_ = -1;
};

// Through File::read_at(); for tests, in which a rank is a thread.
uint64_t bytes_read_by_this_thread();

// Throws IoError when the file is larger than `limit`: no caller reads what it cannot hold.
std::string read_file(const fs::path& path, uint64_t limit = uint64_t{1} << 30);
// Temporary sibling, fsync, rename, fsync of the folder: readers see the old file or the new one.
void write_file_atomically(const fs::path& path, std::string_view content);
void sync_directory(const fs::path& path);
// Makes the folders of `path` that are missing and syncs each one's parent.
void make_directories(const fs::path& path);
// Points `link` at `target` atomically.
void replace_symlink(const fs::path& link, const fs::path& target);
// Durable once the folder is synced.
void rename_path(const fs::path& from, const fs::path& to);
// Swaps the two in one move. False where the file system cannot.
bool exchange_paths(const fs::path& one, const fs::path& other);
// A file, a link, or a folder with all that it holds; nothing there is fine.
void remove_tree(const fs::path& path);

}  // namespace skein
