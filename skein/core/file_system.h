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
#include <memory>
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

// While it lives, the calls above take paths that begin with `name` into the folder that has the
// name now, also when another has it later: a process that is frozen between a look and a write
// harms nobody when it wakes. They fail with ENOENT where the folder is gone. fs::exists() and
// lists go by the name.
class HeldFolder {
 public:
  explicit HeldFolder(const std::filesystem::path& name);  // throws IoError
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  struct Held;

 private:
  std::shared_ptr<const Held> held_;
};

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
