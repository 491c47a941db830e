// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "skein/core/error.h"

namespace skein {
namespace {

File open_file(const fs::path& path, int flags, const char* purpose) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor < 0) throw_errno(fmt::format("cannot open {} {}", path.string(), purpose));
  return File(descriptor);
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

File File::open_to_read(const fs::path& path) { return open_file(path, O_RDONLY, "to read"); }
File File::create(const fs::path& path) {
  return open_file(path, O_RDWR | O_CREAT | O_TRUNC, "to write");
}
File File::open_to_write(const fs::path& path) {
  return open_file(path, O_RDWR | O_CREAT, "to write");
}

uint64_t File::size() const {
  struct stat info{};
  if (::fstat(descriptor_, &info) != 0) throw_errno("cannot stat " + path_of(descriptor_));
  return static_cast<uint64_t>(info.st_size);
}

void File::read_at(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno("cannot read " + path_of(descriptor_));
    if (count == 0) {
      throw IoError(fmt::format("{} ends at byte {}, {} bytes too early", path_of(descriptor_),
                                offset, out.size()));
    }
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void File::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno("cannot write " + path_of(descriptor_));
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void File::resize(uint64_t size) const {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    throw_errno(fmt::format("cannot make {} {} bytes long", path_of(descriptor_), size));
  }
}

void File::sync() const {
  if (::fsync(descriptor_) != 0) throw_errno("cannot fsync " + path_of(descriptor_));
}

std::string read_file(const fs::path& path, uint64_t limit) {
  const auto file = File::open_to_read(path);
  if (fs::is_directory(path)) throw IoError(path.string() + " is a folder, not a file");
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
  const fs::path temporary = fmt::format("{}.tmp-{}", path.string(), ::getpid());
  {
    const auto file = File::create(temporary);
    file.write_at(0, std::as_bytes(std::span(content)));
    file.sync();
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) {
    throw IoError(fmt::format("cannot rename {} to {}: {}", temporary.string(), path.string(),
                              error.message()));
  }
  sync_directory(parent_of(path));
}

void sync_directory(const fs::path& path) {
  open_file(path, O_RDONLY | O_DIRECTORY, "as a folder").sync();
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw IoError(fmt::format("cannot create folder {}: {}", path.string(), error.message()));
}

void replace_symlink(const fs::path& link, const fs::path& target) {
  const fs::path temporary = fmt::format("{}.tmp-{}", link.string(), ::getpid());
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error)
    throw IoError(
        fmt::format("cannot point {} at {}: {}", link.string(), target.string(), error.message()));
  sync_directory(parent_of(link));
}

}  // namespace skein
