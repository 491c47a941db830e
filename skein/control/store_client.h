// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The control store as a rank, or the launcher of another node, sees it.
//
// Each call takes a connection of its own for as long as it lasts and leaves it for the next one:
// a get that waits holds up no other thread. Thread-safe. A lost store is a CommError, and so is
// an answer that does not come. A connection that does not come about (too many want one, or
// strangers flood the port) is tried again, at random distances, until the time is over.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "skein/control/frame.h"
#include "skein/control/handshake.h"
#include "skein/control/secret.h"
#include "skein/core/error.h"
#include "skein/core/store.h"

namespace skein::control {

struct StoreAddress {
  std::string host = "127.0.0.1";
  int port = 0;
  Role role = Role::kRank;
  uint32_t rank = 0;                                 // or the node's number
  uint64_t generation = 0;                           // or the node's admission
  std::chrono::milliseconds join_timeout{600'000};   // of the first connection
  std::chrono::milliseconds answer_timeout{30'000};  // beyond what a get itself may wait
};

// The store has said no: its secret is another, or this process belongs to an older start. Another
// attempt would hear the same.
struct RefusedError : CommError {
  using CommError::CommError;
};

struct Admission {
  std::string token;    // of the run, for secret_of_run()
  uint64_t number = 0;  // to be a node with: Hello::generation
  std::string holder;   // of the place, if another launcher has it; then nothing else is set
};

// Asks for the place of node `address.rank`, with the secret that the machines share. `id` tells
// this launcher from all others, so that it may ask again; `name` is for people. Throws CommError.
Admission ask_admission(const Secret& shared, const StoreAddress& address, const std::string& id,
                        const std::string& name);

class StoreClient final : public Store {
 public:
  // Connects and proves itself once, so that a wrong secret is known now: a RefusedError. Throws
  // CommError when the store cannot be joined within `join_timeout`.
  StoreClient(const Secret& secret, const StoreAddress& address);
  ~StoreClient() override;

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::string get(const std::string& key, Duration timeout) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool erase(const std::string& key) override;

 private:
  friend Admission ask_admission(const Secret&, const StoreAddress&, const std::string&,
                                 const std::string&);
  class Connection;
  std::unique_ptr<Connection> take_connection();
  StoreResponse call(const StoreRequest& request, Duration wait = Duration(0));

  const Secret secret_;
  const StoreAddress address_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

}  // namespace skein::control
