// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The system calls that change what a disk holds, behind one seam.
//
// core/file.h and everything built on it (checkpoints, logs, prepared data) call the current file
// system; programs have only the real one. Tests derive from it to record what is done, to let it
// fail, or to replay it. Of reading, opening and the bytes of File::read_at() are here: most
// readers are tested with broken files.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace skein {

// Every call behaves as the system call of its name: -1 and errno on failure. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int open(const std::filesystem::path& path, int flags);
  virtual ssize_t read(int descriptor, std::span<std::byte> out, uint64_t offset);
  virtual ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset);
  virtual int truncate(int descriptor, uint64_t size);
  // Room on the disk for the bytes [0, size); EOPNOTSUPP where the file system cannot.
  virtual int allocate(int descriptor, uint64_t size);
  virtual int sync(int descriptor);
  // `flags` are those of renameat2.
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to,
                     unsigned flags);
  virtual int make_symlink(const std::filesystem::path& target, const std::filesystem::path& link);
  virtual int make_directory(const std::filesystem::path& path);
  // A file, a link or an empty folder.
  virtual int remove(const std::filesystem::path& path);

  // Waits before an attempt is made again.
  virtual void pause(std::chrono::milliseconds duration);
};

FileSystem& file_system();

// For tests: `replacement` is everybody's file system until the end of the scope. Nobody may be
// writing when the scope begins or ends.
class ScopedFileSystem {
 public:
  explicit ScopedFileSystem(FileSystem& replacement);
  ~ScopedFileSystem();
  ScopedFileSystem(const ScopedFileSystem&) = delete;
  ScopedFileSystem& operator=(const ScopedFileSystem&) = delete;

 private:
  FileSystem* before_;
};

}  // namespace skein
