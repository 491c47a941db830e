// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/file_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace skein {
namespace {

FileSystem real_file_system;
std::atomic<FileSystem*> current = &real_file_system;

}  // namespace

int FileSystem::open(const std::filesystem::path& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC, 0666);
}

ssize_t FileSystem::read(int descriptor, std::span<std::byte> out, uint64_t offset) {
  return ::pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
}

ssize_t FileSystem::write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) {
  return ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
}

int FileSystem::truncate(int descriptor, uint64_t size) {
  return ::ftruncate(descriptor, static_cast<off_t>(size));
}

int FileSystem::allocate(int descriptor, uint64_t size) {
  // Not posix_fallocate(), which writes to every block where the file system cannot.
  return ::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size));
}

int FileSystem::sync(int descriptor) { return ::fsync(descriptor); }

int FileSystem::rename(const std::filesystem::path& from, const std::filesystem::path& to,
                       unsigned flags) {
  // Some file systems know rename() only.
  if (flags == 0) return ::rename(from.c_str(), to.c_str());
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
}

int FileSystem::make_symlink(const std::filesystem::path& target,
                             const std::filesystem::path& link) {
  return ::symlink(target.c_str(), link.c_str());
}

int FileSystem::make_directory(const std::filesystem::path& path) {
  return ::mkdir(path.c_str(), 0777);
}

int FileSystem::remove(const std::filesystem::path& path) { return ::remove(path.c_str()); }

void FileSystem::pause(std::chrono::milliseconds duration) {
  std::this_thread::sleep_for(duration);
}

FileSystem& file_system() { return *current.load(std::memory_order_acquire); }

ScopedFileSystem::ScopedFileSystem(FileSystem& replacement)
    : before_(current.exchange(&replacement)) {}

ScopedFileSystem::~ScopedFileSystem() { current = before_; }

}  // namespace skein
