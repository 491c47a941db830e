// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/store.h"

#include <fmt/format.h>

#include <charconv>

#include "skein/core/error.h"

namespace skein {

void MemoryStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::optional<std::string> MemoryStore::try_get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::string MemoryStore::get(const std::string& key, Duration timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
    throw CommError(fmt::format("no rank has set '{}' within {} ms", key, timeout.count()));
  }
  return values_.at(key);
}

int64_t MemoryStore::add(const std::string& key, int64_t amount) {
  const std::lock_guard lock(mutex_);
  auto& text = values_[key];
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  value += amount;
  text = std::to_string(value);
  changed_.notify_all();
  return value;
}

bool MemoryStore::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return values_.erase(key) > 0;
}

}  // namespace skein
