// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does the launcher of node 1, 2, … speak with node 0? Through node 0's store.
//
// One thread tells this node's state, every 500 ms and at once when there is news; another waits
// for commands. Both connect anew when a connection breaks; a node that has not been answered for
// `silence` has lost node 0.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "skein/control/store_client.h"
#include "skein/core/error.h"
#include "skein/launch/ranks/node_loop.h"

namespace skein::launch {

// The launcher first asks for its node's place, with the secret that the machines share; it learns
// the run's token and joins with the secret of this one run: a launcher that is left of another one
// is not heard. A place that another launcher has is asked for until that one must have been
// missed.

std::string make_run_token();

// Keys of the store. A command is set before its number is the newest.
inline constexpr const char* kNewestCommandKey = "node/command";
std::string status_key(int node);
std::string command_key(uint64_t serial);

struct NodeLinkOptions {
  std::string host;
  int port = 0;
  int node = 1;
  std::chrono::milliseconds silence{3000};
  std::chrono::milliseconds tell_every{500};
  std::chrono::milliseconds join_timeout{600'000};
  // That the machines share. Asked at every attempt to join: node 0 may write it later. Throws
  // CommError: not there yet.
  std::function<control::Secret()> secret;
};

class NodeLink final : public Commander {
 public:
  explicit NodeLink(const NodeLinkOptions& options);
  ~NodeLink() override;

  int descriptor() const override { return wake_.descriptor(); }
  void report(const NodeStatus& status) override;
  NodeCommand command() override;
  std::optional<HeadLost> head_lost() const override;
  std::optional<std::string> token() const override;
  control::Secret secret() const override;
  void leave(const NodeStatus& status) override;

 private:
  void tell();    // the first thread: joins, then tells
  void listen();  // the second
  bool join();
  std::string try_to_join();  // why it could not; empty: joined
  bool give_up_joining(const std::string& why);
  bool wait(std::chrono::milliseconds time);  // false: the link ends
  void fail(ExitCode code, const std::string& why);

  const NodeLinkOptions options_;
  const std::string id_;  // of this launcher, among all
  const Time started_;
  Time named_;                       // when it was told last who is waited for
  std::optional<Time> taken_since_;  // another launcher has this node's place
  uint64_t serial_ = 1;              // of the next command
  File wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<control::StoreClient> store_;  // once joined
  std::string token_;                            // likewise
  control::Secret secret_{};                     // likewise: of this run
  std::string status_;                           // newest, as text
  bool untold_ = false;                          // it has not been told yet
  bool told_ = false;                            // status_ was taken by node 0
  NodeCommand command_;
  std::optional<HeadLost> head_lost_;  // why the link is of no use
  Time heard_;
  Time asked_;  // for a command, last
  bool ending_ = false;
  std::thread teller_, listener_;
};

}  // namespace skein::launch
