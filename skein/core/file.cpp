// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/file_system.h"

namespace skein {
namespace {

thread_local uint64_t read_here = 0;  // bytes

File open_file(const fs::path& path, int flags, const char* purpose) {
  const int descriptor = file_system().open(path, flags);
  if (descriptor >= 0) return File(descriptor);
  if (errno == ELOOP && (flags & O_NOFOLLOW) != 0) {
    throw IoError(path.string() + " is a link, and nothing is written through one: remove it");
  }
  throw_errno(fmt::format("cannot open {} {}", path.string(), purpose));
}

// O_NONBLOCK: opening a pipe that somebody left in a folder must not wait for its other end.
File open_regular(const fs::path& path, int flags, const char* purpose) {
  auto file = open_file(path, flags | O_NONBLOCK, purpose);
  struct stat info{};
  if (::fstat(file.descriptor(), &info) != 0) throw_errno("cannot stat " + path.string());
  if (S_ISDIR(info.st_mode)) throw IoError(path.string() + " is a folder, not a file");
  if (!S_ISREG(info.st_mode)) throw IoError(path.string() + " is not a regular file");
  return file;
}

std::string path_of(int descriptor) {
  std::error_code ignored;
  return fs::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), ignored).string();
}

fs::path parent_of(const fs::path& path) {
  const auto parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = other.release();
  }
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File File::open_to_read(const fs::path& path) { return open_regular(path, O_RDONLY, "to read"); }
File File::create(const fs::path& path, Access access) {
  const int flags = (access == Access::kWrite ? O_WRONLY : O_RDWR) | O_CREAT | O_EXCL | O_NOFOLLOW;
  if (const int descriptor = file_system().open(path, flags); descriptor >= 0) {
    return File(descriptor);
  }
  if (errno == EEXIST && file_system().remove(path) != 0) {
    throw_errno("cannot replace " + path.string());
  }
  return open_file(path, flags, "to write");
}
File File::open_to_write(const fs::path& path) {
  return open_regular(path, O_WRONLY | O_NOFOLLOW, "to write");
}
File File::open_or_create(const fs::path& path) {
  return open_regular(path, O_WRONLY | O_CREAT | O_NOFOLLOW, "to write");
}
File File::open_to_append(const fs::path& path) {
  return open_regular(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, "to write");
}
File File::overwrite(const fs::path& path) {
  return open_file(path, O_WRONLY | O_CREAT | O_TRUNC, "to write");
}

uint64_t File::size() const {
  struct stat info{};
  if (::fstat(descriptor_, &info) != 0) throw_errno("cannot stat " + path_of(descriptor_));
  return static_cast<uint64_t>(info.st_size);
}

uint64_t bytes_read_by_this_thread() { return read_here; }

void File::read_at(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = file_system().read(descriptor_, out, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno("cannot read " + path_of(descriptor_));
    if (count == 0) {
      throw IoError(fmt::format("{} ends at byte {}, {} bytes too early", path_of(descriptor_),
                                offset, out.size()));
    }
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
    read_here += static_cast<uint64_t>(count);
  }
}

void File::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = file_system().write(descriptor_, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno("cannot write " + path_of(descriptor_));
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void File::resize(uint64_t size) const {
  if (file_system().truncate(descriptor_, size) != 0) {
    throw_errno(fmt::format("cannot make {} {} bytes long", path_of(descriptor_), size));
  }
}

void File::reserve(uint64_t size) const {
  if (size > 0 && file_system().allocate(descriptor_, size) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS && errno != EINVAL) {
    throw_errno(fmt::format("cannot make room for {} bytes of {}", size, path_of(descriptor_)));
  }
  resize(size);
}

void File::sync() const {
  // Never tried again: after a failure the kernel may have dropped the pages that it could not
  // write, and a second fsync would report success without them.
  if (file_system().sync(descriptor_) != 0) throw_errno("cannot fsync " + path_of(descriptor_));
}

fs::path temporary_beside(const fs::path& path) {
  std::random_device random;
  return fmt::format("{}.tmp-{:08x}{:08x}", path.string(), random(), random());
}

std::string read_file(const fs::path& path, uint64_t limit) {
  const auto file = File::open_to_read(path);
  const uint64_t size = file.size();
  if (size > limit) {
    throw IoError(
        fmt::format("{} has {} bytes, more than the limit of {}", path.string(), size, limit));
  }
  std::string content(size, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(content)));
  return content;
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const auto temporary = temporary_beside(path);
  try {
    const auto file = File::create(temporary);
    file.write_at(0, std::as_bytes(std::span(content)));
    file.sync();
    rename_path(temporary, path);
  } catch (const IoError&) {
    file_system().remove(temporary);  // a full disk needs its bytes
    throw;
  }
  sync_directory(parent_of(path));
}

void sync_directory(const fs::path& path) {
  open_file(path, O_RDONLY | O_DIRECTORY, "as a folder").sync();
}

void make_directories(const fs::path& path) {
  std::vector<fs::path> missing;
  std::error_code ignored;
  for (auto folder = path; !folder.empty() && !fs::is_directory(folder, ignored);
       folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder) {
    // Another process may be making the same one.
    if (file_system().make_directory(*folder) != 0 &&
        !(errno == EEXIST && fs::is_directory(*folder, ignored))) {
      throw_errno("cannot create folder " + path.string());
    }
    sync_directory(parent_of(*folder));
  }
}

void make_new_directory(const fs::path& path) {
  if (file_system().make_directory(path) != 0) {
    throw_errno("cannot create folder " + path.string());
  }
  sync_directory(parent_of(path));
}

void replace_symlink(const fs::path& link, const fs::path& target) {
  const auto temporary = temporary_beside(link);
  if (file_system().make_symlink(target, temporary) != 0) {
    throw_errno(fmt::format("cannot point {} at {}", link.string(), target.string()));
  }
  try {
    rename_path(temporary, link);
  } catch (const IoError&) {
    file_system().remove(temporary);
    throw;
  }
  sync_directory(parent_of(link));
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (file_system().rename(from, to, 0) != 0) {
    throw_errno(fmt::format("cannot rename {} to {}", from.string(), to.string()));
  }
}

bool exchange_paths(const fs::path& one, const fs::path& other) {
  return file_system().rename(one, other, RENAME_EXCHANGE) == 0;
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  const auto type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found) return;
  std::vector<fs::path> inside;
  if (type == fs::file_type::directory) {
    auto entry = fs::directory_iterator(path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      inside.push_back(entry->path());
    }
  }
  for (const auto& below : inside) remove_tree(below);
  if (file_system().remove(path) != 0 && errno != ENOENT) {
    throw_errno("cannot remove " + path.string());
  }
}

}  // namespace skein
