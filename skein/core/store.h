// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The control plane's key-value store, as its users see it.
//
// control/ serves one over authenticated sockets; MemoryStore serves ranks that are threads.
// Values are small (a frame is at most 1 MiB). All calls are thread-safe and bounded by a deadline.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace skein {

class Store {
 public:
  using Duration = std::chrono::milliseconds;
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  // Waits until the key exists. Throws CommError naming the key after `timeout`.
  virtual std::string get(const std::string& key, Duration timeout) = 0;
  // Adds to a decimal counter (absent = 0) and returns the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  virtual bool erase(const std::string& key) = 0;
};

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::string get(const std::string& key, Duration timeout) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool erase(const std::string& key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace skein
