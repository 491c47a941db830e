// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/disk_trace.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <set>

namespace skein::checkpoint {
namespace {

using Kind = DiskOperation::Kind;

bool changes_bytes(const DiskOperation& operation) {
  return operation.kind == Kind::kWrite || operation.kind == Kind::kTruncate;
}

bool is_sync(const DiskOperation& operation) {
  return operation.kind == Kind::kSyncFile || operation.kind == Kind::kSyncFolder;
}

struct Disk {
  std::map<int, std::map<std::string, int>> folders{{0, {}}};
  std::map<int, std::string> files;
  std::map<int, std::string> links;

  void change_name(const DiskOperation& operation);
  void change_bytes(const DiskOperation& operation, Fate fate, std::mt19937_64& random);
  void list(int folder, const std::string& prefix, DiskTree& tree) const;
};

void Disk::change_name(const DiskOperation& operation) {
  auto& names = folders[operation.folder];
  switch (operation.kind) {
    case Kind::kCreate:
      files[operation.node];
      names[operation.name] = operation.node;
      break;
    case Kind::kMakeFolder:
      folders[operation.node];
      names[operation.name] = operation.node;
      break;
    case Kind::kSymlink:
      links[operation.node] = operation.other;
      names[operation.name] = operation.node;
      break;
    case Kind::kRename:
      names.erase(operation.name);
      names[operation.other] = operation.node;
      break;
    case Kind::kExchange:
      names[operation.name] = operation.other_node;
      names[operation.other] = operation.node;
      break;
    default:
      names.erase(operation.name);
  }
}

void Disk::change_bytes(const DiskOperation& operation, Fate fate, std::mt19937_64& random) {
  auto& content = files[operation.node];
  if (operation.kind == Kind::kTruncate) {
    content.resize(operation.size);
    return;
  }
  auto bytes = operation.bytes;
  if (fate == Fate::kHalf) bytes.resize(random() % (bytes.size() + 1));
  if (fate == Fate::kZero) bytes.assign(bytes.size(), '\0');
  content.resize(std::max<size_t>(content.size(), operation.offset + bytes.size()));
  content.replace(operation.offset, bytes.size(), bytes);
}

void Disk::list(int folder, const std::string& prefix, DiskTree& tree) const {
  for (const auto& [name, node] : folders.at(folder)) {
    if (folders.contains(node)) {
      tree[prefix + name + "/"] = "";
      list(node, prefix + name + "/", tree);
    } else if (links.contains(node)) {
      tree[prefix + name] = "-> " + links.at(node);
    } else {
      const auto file = files.find(node);
      tree[prefix + name] = file == files.end() ? "" : file->second;
    }
  }
}

}  // namespace

std::string DiskOperation::text() const {
  static constexpr const char* kNames[] = {"create", "mkdir", "symlink",  "rename", "exchange",
                                           "remove", "write", "truncate", "sync",   "sync folder"};
  return fmt::format("{} {} {} {} (node {}, handle {}, {} bytes at {})",
                     kNames[static_cast<int>(kind)], folder, name, other, node, handle,
                     bytes.size() + size, offset);
}

int DiskRecorder::find(const fs::path& path) const {
  const auto relative = path.lexically_relative(root_);
  if (relative.empty() || *relative.begin() == "..") return -1;
  int node = 0;
  for (const auto& part : relative) {
    if (part.empty() || part == ".") continue;
    const auto folder = folders_.find(node);
    if (folder == folders_.end()) return -1;
    const auto found = folder->second.find(part.string());
    if (found == folder->second.end()) return -1;
    node = found->second;
  }
  return node;
}

DiskOperation DiskRecorder::named(Kind kind, const fs::path& path, int node) const {
  return {.kind = kind, .folder = find(path.parent_path()), .name = path.filename(), .node = node};
}

int DiskRecorder::open(const fs::path& path, int flags) {
  const std::lock_guard lock(mutex_);
  const int descriptor = FileSystem::open(path, flags);
  if (descriptor < 0) return descriptor;
  int node = find(path);
  const int handle = ++num_handles_;
  const bool ours = find(path.parent_path()) >= 0;
  if (node < 0 && ours && (flags & O_CREAT) != 0) {
    node = num_nodes_++;
    operations.push_back(named(Kind::kCreate, path, node));
    folders_[operations.back().folder][path.filename()] = node;
  } else if (node >= 0 && (flags & O_TRUNC) != 0) {
    operations.push_back({.kind = Kind::kTruncate, .node = node, .handle = handle});
  }
  opened_[descriptor] = {handle, node};
  return descriptor;
}

ssize_t DiskRecorder::write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const ssize_t count = FileSystem::write(descriptor, bytes, offset);
  const auto [handle, node] = opened_[descriptor];
  if (count > 0 && node >= 0) {
    operations.push_back(
        {.kind = Kind::kWrite,
         .node = node,
         .handle = handle,
         .offset = offset,
         .bytes = {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count)}});
  }
  return count;
}

int DiskRecorder::truncate(int descriptor, uint64_t size) {
  const std::lock_guard lock(mutex_);
  const auto [handle, node] = opened_[descriptor];
  if (node >= 0) {
    operations.push_back({.kind = Kind::kTruncate, .node = node, .handle = handle, .size = size});
  }
  return FileSystem::truncate(descriptor, size);
}

// Not passed on: what would last is for disk_after() to say.
int DiskRecorder::sync(int descriptor) {
  const std::lock_guard lock(mutex_);
  const auto [handle, node] = opened_[descriptor];
  if (node < 0) return 0;
  if (folders_.contains(node)) {
    operations.push_back({.kind = Kind::kSyncFolder, .folder = node});
  } else {
    operations.push_back({.kind = Kind::kSyncFile, .node = node, .handle = handle});
  }
  return 0;
}

int DiskRecorder::rename(const fs::path& from, const fs::path& to, unsigned flags) {
  const std::lock_guard lock(mutex_);
  if (flags != 0 && !can_exchange) {
    errno = EINVAL;
    return -1;
  }
  if (FileSystem::rename(from, to, flags) != 0) return -1;
  auto operation = named(flags == 0 ? Kind::kRename : Kind::kExchange, from, find(from));
  operation.other = to.filename();
  operation.other_node = find(to);
  auto& names = folders_[operation.folder];
  names.erase(operation.name);
  if (flags != 0) names[operation.name] = operation.other_node;
  names[operation.other] = operation.node;
  operations.push_back(operation);
  return 0;
}

int DiskRecorder::make_symlink(const fs::path& target, const fs::path& link) {
  const std::lock_guard lock(mutex_);
  if (FileSystem::make_symlink(target, link) != 0) return -1;
  auto operation = named(Kind::kSymlink, link, num_nodes_++);
  operation.other = target;
  folders_[operation.folder][operation.name] = operation.node;
  operations.push_back(operation);
  return 0;
}

int DiskRecorder::make_directory(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  if (FileSystem::make_directory(path) != 0) return -1;
  operations.push_back(named(Kind::kMakeFolder, path, num_nodes_++));
  folders_[operations.back().folder][operations.back().name] = operations.back().node;
  folders_[operations.back().node];
  return 0;
}

int DiskRecorder::remove(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  if (FileSystem::remove(path) != 0) return -1;
  operations.push_back(named(Kind::kRemove, path, find(path)));
  folders_[operations.back().folder].erase(operations.back().name);
  return 0;
}

std::vector<bool> certain(const std::vector<DiskOperation>& operations, size_t length) {
  std::vector<bool> result(length);
  std::set<int> synced_handles, synced_folders;
  for (size_t i = length; i-- > 0;) {
    const auto& operation = operations[i];
    if (operation.kind == Kind::kSyncFile) synced_handles.insert(operation.handle);
    if (operation.kind == Kind::kSyncFolder) synced_folders.insert(operation.folder);
    result[i] = is_sync(operation) ||
                (changes_bytes(operation) ? synced_handles.contains(operation.handle)
                                          : synced_folders.contains(operation.folder));
  }
  return result;
}

DiskTree disk_after(const std::vector<DiskOperation>& operations, const std::vector<Fate>& fates,
                    const std::vector<bool>& is_certain, std::mt19937_64& random) {
  Disk disk;
  for (size_t i = 0; i < is_certain.size(); ++i) {
    const auto fate = is_certain[i] ? Fate::kDone : fates[i];
    if (is_sync(operations[i]) || fate == Fate::kLost) continue;
    if (changes_bytes(operations[i])) {
      disk.change_bytes(operations[i], fate, random);
    } else {
      disk.change_name(operations[i]);
    }
  }
  DiskTree tree;
  disk.list(0, "", tree);
  return tree;
}

void write_tree(const DiskTree& tree, const fs::path& root) {
  for (const auto& [path, content] : tree) {
    if (path.ends_with("/")) {
      fs::create_directory(root / path);
    } else if (content.starts_with("-> ")) {
      fs::create_symlink(content.substr(3), root / path);
    } else {
      const auto file = File::create(root / path);
      file.write_at(0, std::as_bytes(std::span(content)));
    }
  }
}

}  // namespace skein::checkpoint
