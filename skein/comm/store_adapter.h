// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Lets c10d meet through skein's own store.
//
// A header because two backends need it and each file that includes c10d costs seconds. Values are
// bytes, not text. The store must outlive the adapter and its clones.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/store.h"

namespace skein::comm {

class StoreAdapter final : public c10d::Store {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Every key gets the prefix: several groups share one store.
  StoreAdapter(skein::Store& store, std::string prefix, Milliseconds timeout)
      : c10d::Store(timeout), store_(store), prefix_(std::move(prefix)) {}

  using c10d::Store::set;

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<StoreAdapter>(store_, prefix_, timeout_);
  }

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    store_.set(prefix_ + key, std::string(value.begin(), value.end()));
  }

  std::vector<uint8_t> get(const std::string& key) override {
    const auto value = store_.get(prefix_ + key, timeout_);
    return {value.begin(), value.end()};
  }

  int64_t add(const std::string& key, int64_t amount) override {
    return store_.add(prefix_ + key, amount);
  }

  bool deleteKey(const std::string& key) override { return store_.erase(prefix_ + key); }

  bool check(const std::vector<std::string>& keys) override {
    return std::ranges::all_of(
        keys, [&](const std::string& key) { return store_.try_get(prefix_ + key).has_value(); });
  }

  int64_t getNumKeys() override {
    throw InternalError("the control store does not count its keys");
  }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }

  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (const auto& key : keys) {
      const auto left =
          std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now());
      store_.get(prefix_ + key, std::max(left, Milliseconds(1)));
    }
  }

 private:
  skein::Store& store_;
  std::string prefix_;
};

// A prefix of its own for each group made over one store: the ranks' n-th connect() is one group,
// because none of them can return before all have come.
inline std::string group_prefix(skein::Store& store, const std::string& backend, int size) {
  const auto counter = "comm/" + backend + "/joined";
  return fmt::format("comm/{}/{}/", backend, (store.add(counter, 1) - 1) / size);
}

}  // namespace skein::comm
