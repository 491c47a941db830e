// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Starts the nodes of a hostfile: over ssh, or directly where the host is this machine.
//
// The only words that reach a remote shell are this program's path, which may hold nothing a shell
// would act on, and "remote-node". Everything else (arguments, folder, variables and the run's
// secret) is one line of JSON through ssh's standard input. Later lines are orders: "stop" (finish
// the step, save, end) and "kill"; the input's end means that the starter is gone.
//
// Each line that a node prints is shown with "[host] " before it. A node other than 0 that is lost
// (ssh broke, its launcher died, it lost node 0) is started again while plan.max_restarts lasts:
// node 0 waits for it. When a node fails otherwise the others are ended; the code is the root
// cause's, as in launcher.h.

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "skein/control/secret.h"
#include "skein/launch/placement/launch_plan.h"

namespace skein::launch {

// What a node is told.
struct NodeStart {
  std::vector<std::string> arguments;            // of `skein`, the command first
  std::string directory;                         // where to run it
  std::map<std::string, std::string> variables;  // to set besides those that it has
  control::Secret secret{};
};

std::string encode(const NodeStart& order);  // one line, without its newline
// Throws UserError when the text is no order: it comes from outside.
NodeStart decode_start(const std::string& text);

struct RemoteStartOptions {
  std::string program;                 // this program; empty: looked up
  std::vector<std::string> arguments;  // of `skein`, the command first, without launch flags
  std::map<std::string, std::string> variables;       // to forward
  std::chrono::milliseconds root_cause_window{1000};  // as in LaunchOptions
  std::chrono::milliseconds grace{15'000};  // for the others to end by themselves after a failure
};

// The ssh command for a host. Throws UserError when the host or the program's path may not be given
// to ssh.
std::vector<std::string> ssh_command(const std::string& host, int ssh_port,
                                     const std::string& program);

// Call on the main thread, before any other thread exists. Returns the run's exit code.
int start_remote(const LaunchPlan& plan, const RemoteStartOptions& options);

// `skein remote-node`: reads its order and runs the command that it names, to its exit code.
int run_remote_node();

}  // namespace skein::launch
