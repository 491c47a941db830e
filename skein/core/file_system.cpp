// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/file_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "skein/core/error.h"

namespace skein {

struct HeldFolder::Held {
  std::string name;
  int descriptor = -1;

  Held(std::string path, int folder) : name(std::move(path)), descriptor(folder) {}
  ~Held() { ::close(descriptor); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  bool has(const std::string& path) const {
    return path.starts_with(name) && (path.size() == name.size() || path[name.size()] == '/');
  }
};

namespace {

FileSystem real_file_system;
std::atomic<FileSystem*> current = &real_file_system;

using Held = std::shared_ptr<const HeldFolder::Held>;
std::shared_mutex held_mutex;
std::vector<Held> held_folders;

// A path as the system calls with a folder take it.
class Place {
 public:
  explicit Place(const std::filesystem::path& path) : name_(path.native()) {
    const std::shared_lock lock(held_mutex);
    // The youngest: in tests a process takes a folder's name several times.
    const auto held = std::find_if(held_folders.rbegin(), held_folders.rend(),
                                   [&](const Held& one) { return one->has(name_); });
    if (held == held_folders.rend()) return;
    held_ = *held;
    name_.erase(0, name_.find_first_not_of('/', held_->name.size()));
    if (name_.empty()) name_ = ".";
  }

  int folder() const { return held_ ? held_->descriptor : AT_FDCWD; }
  const char* name() const { return name_.c_str(); }

 private:
  std::string name_;
  Held held_;  // its descriptor stays until the call is done
};

}  // namespace

HeldFolder::HeldFolder(const std::filesystem::path& name) {
  const int descriptor = ::open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw_errno("cannot open " + name.string() + " as a folder");
  auto path = name.native();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  held_ = std::make_shared<const Held>(std::move(path), descriptor);
  const std::unique_lock lock(held_mutex);
  held_folders.push_back(held_);
}

HeldFolder::~HeldFolder() {
  const std::unique_lock lock(held_mutex);
  std::erase(held_folders, held_);
}

int FileSystem::open(const std::filesystem::path& path, int flags) {
  const Place place(path);
  return ::openat(place.folder(), place.name(), flags | O_CLOEXEC, 0666);
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
  const Place old(from), young(to);
  // Some file systems know no flags.
  if (flags == 0) return ::renameat(old.folder(), old.name(), young.folder(), young.name());
  return ::renameat2(old.folder(), old.name(), young.folder(), young.name(), flags);
}

int FileSystem::make_symlink(const std::filesystem::path& target,
                             const std::filesystem::path& link) {
  const Place place(link);
  return ::symlinkat(target.c_str(), place.folder(), place.name());
}

int FileSystem::make_directory(const std::filesystem::path& path) {
  const Place place(path);
  return ::mkdirat(place.folder(), place.name(), 0777);
}

int FileSystem::remove(const std::filesystem::path& path) {
  const Place place(path);
  if (::unlinkat(place.folder(), place.name(), 0) == 0) return 0;
  return errno == EISDIR ? ::unlinkat(place.folder(), place.name(), AT_REMOVEDIR) : -1;
}

void FileSystem::pause(std::chrono::milliseconds duration) {
  std::this_thread::sleep_for(duration);
}

FileSystem& file_system() { return *current.load(std::memory_order_acquire); }

ScopedFileSystem::ScopedFileSystem(FileSystem& replacement)
    : before_(current.exchange(&replacement)) {}

ScopedFileSystem::~ScopedFileSystem() { current = before_; }

}  // namespace skein
