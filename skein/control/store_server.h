// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Serves the control store: one thread, one address, only to those who know the secret.
//
// A peer that has not proved itself is a stranger: read to a fixed bound, answered with one
// challenge and closed after `handshake_timeout`. Those who have proved themselves are served
// first. Strangers are let in a few at a time with pauses between, so that a flood of them costs a
// share of one core and delays nobody; when `max_strangers` wait, the oldest makes room, one that
// has said nothing before one that has said hello. Whoever is turned away in a crowd tries again
// (store_client.h). A get that must wait is parked here and costs nothing.
//
// Ranks share one set of values, which ends with their generation. Keys that begin with "node/" are
// for launchers alone and stay. A launcher asks for its node's place as a guest and then joins with
// the number of that admission. The place is free again when its connections are closed or the node
// is expelled; who had it before can no longer join.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "skein/control/secret.h"

namespace skein::control {

struct StoreServerOptions {
  std::string host = "127.0.0.1";  // the interface to listen on, no other
  int port = 0;                    // 0: a free one
  uint32_t size = 1;               // ranks of the run: higher numbers are refused
  uint32_t nodes = 0;              // launchers that may join, likewise
  uint64_t generation = 0;
  Secret guest_secret{};  // that launchers have before they know the run
  std::string token;      // of the run: what a guest is told
  std::chrono::milliseconds handshake_timeout{2000};
  size_t max_strangers = 512;
  // Called by the store's thread: a launcher got its node's place; has set a key; its last
  // connection was closed.
  std::function<void(int node, uint64_t admission)> on_node_admitted = {};
  std::function<void(int node, const std::string& key, const std::string& value)> on_node_set = {};
  std::function<void(int node)> on_node_closed = {};
};

class StoreServer {
 public:
  // Listens when it returns. Throws UserError when the address or port cannot be had.
  StoreServer(const Secret& secret, const StoreServerOptions& options);
  ~StoreServer();

  int port() const;
  void set(const std::string& key, const std::string& value);
  // Ranks of other generations are closed and refused from now on, their values are forgotten.
  void begin_generation(uint64_t generation, uint32_t size);
  // If the node still has that admission, its connections are closed and its place is free.
  void expel_node(int node, uint64_t admission);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace skein::control
