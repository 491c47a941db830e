// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/comm/foreign_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "skein/comm/c10d_error.h"
#include "skein/control/socket.h"
#include "skein/core/error.h"

namespace skein::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Tcp = c10::intrusive_ptr<c10d::TCPStore>;

// A store that was there answers at once or is lost.
constexpr Milliseconds kAnswerTimeout{10'000};

std::string interface_for(const ForeignStoreOptions& options) {
  if (options.one_machine) return options.host;
  return options.host.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

// c10d's own server would listen on every interface, and says little about a port that is taken.
int listen_for_ranks(const ForeignStoreOptions& options) {
  try {
    return control::listen_on(interface_for(options), options.port).release();
  } catch (const UserError& error) {
    throw UserError(
        fmt::format("rank 0 cannot serve the ranks' store: {}; give the launcher another master "
                    "port (MASTER_PORT, --master-port), or end what listens there (`ss -ltnp`)",
                    error.what()));
  }
}

class TcpForeignStore final : public ForeignStore {
 public:
  explicit TcpForeignStore(ForeignStoreOptions options) : options_(std::move(options)) {
    idle_.push_back(options_.serve ? serve() : connect(options_.timeout));
  }

  int port() const override { return options_.port; }

  void set(const std::string& key, const std::string& value) override {
    with_connection(key, [&](c10d::Store& store) {
      store.set(name_of(key), value);
      return true;
    });
  }

  std::optional<std::string> try_get(const std::string& key) override {
    return with_connection(key, [&](c10d::Store& store) -> std::optional<std::string> {
      if (!store.check({name_of(key)})) return std::nullopt;
      return read(store, key, kAnswerTimeout);
    });
  }

  std::string get(const std::string& key, Duration timeout) override {
    return with_connection(key, [&](c10d::Store& store) {
      store.wait({name_of(key)}, std::max(timeout, Milliseconds(1)));
      return read(store, key, kAnswerTimeout);
    });
  }

  int64_t add(const std::string& key, int64_t amount) override {
    return with_connection(key,
                           [&](c10d::Store& store) { return store.add(name_of(key), amount); });
  }

  bool erase(const std::string& key) override {
    return with_connection(key, [&](c10d::Store& store) { return store.deleteKey(name_of(key)); });
  }

 private:
  std::string name_of(const std::string& key) const { return options_.prefix + key; }

  std::string read(c10d::Store& store, const std::string& key, Milliseconds timeout) const {
    const c10d::StoreTimeoutGuard guard(store, timeout);
    const auto bytes = store.get(name_of(key));
    return {bytes.begin(), bytes.end()};
  }

  Tcp serve() {
    c10d::TCPStoreOptions options{.port = static_cast<uint16_t>(options_.port),
                                  .isServer = true,
                                  .waitWorkers = false,
                                  .timeout = options_.timeout};
    options.masterListenFd = listen_for_ranks(options_);
    server_ = open(options);
    options_.port = server_->getPort();
    return connect(options_.timeout);
  }

  Tcp connect(Milliseconds timeout) const {
    const c10d::TCPStoreOptions options{.port = static_cast<uint16_t>(options_.port),
                                        .isServer = false,
                                        .waitWorkers = false,
                                        .timeout = timeout};
    return open(options);
  }

  Tcp open(const c10d::TCPStoreOptions& options) const {
    try {
      return c10::make_intrusive<c10d::TCPStore>(options_.host, options);
    } catch (const c10::Error& error) {
      throw CommError(fmt::format("cannot reach the ranks' store at {} port {}: {}", options_.host,
                                  options_.port, reason_of(error)));
    }
  }

  Tcp take_connection() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return connect(kAnswerTimeout);
  }

  // A connection that has failed is not used again: an answer may still be on its way.
  template <typename Use>
  std::invoke_result_t<Use, c10d::Store&> with_connection(const std::string& key, const Use& use) {
    const auto connection = take_connection();
    try {
      auto result = use(*connection);
      const std::lock_guard lock(mutex_);
      idle_.push_back(connection);
      return result;
    } catch (const c10::Error& error) {
      throw CommError(fmt::format("the ranks' store at {} port {} did not give '{}': {}",
                                  options_.host, options_.port, key, reason_of(error)));
    }
  }

  ForeignStoreOptions options_;
  Tcp server_;  // null: another process serves
  std::mutex mutex_;
  std::vector<Tcp> idle_;
};

}  // namespace

std::unique_ptr<ForeignStore> join_foreign_store(const ForeignStoreOptions& options) {
  return std::make_unique<TcpForeignStore>(options);
}

}  // namespace skein::comm
