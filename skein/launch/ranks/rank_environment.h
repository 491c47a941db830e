// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a rank know about itself when it starts?
//
// The launcher writes these variables and the rank reads them; names that other launchers use too
// have their meaning (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR).

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/control/secret.h"
#include "skein/core/store.h"

namespace skein::launch {

// What is said by another launcher than skein's.
struct ForeignLauncher {
  std::string name;              // "torchrun"; empty: skein's own
  bool store_is_served = false;  // it listens at the store's port itself; otherwise rank 0 does
  std::string attempt = "0";     // keeps starts of one job apart
};

struct RankEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  config::Device device = config::Device::kCpu;  // what the launcher found: never kAuto
  std::string store_host = "127.0.0.1";
  int store_port = 0;
  std::string interface = "127.0.0.1";  // this machine's address towards the other nodes
  uint64_t generation = 0;              // which start of the run this is
  control::Secret secret{};
  ForeignLauncher foreign;
  int gpu = 0;        // which of the visible ones is this rank's; skein's own launcher: local_rank
  int board = -1;     // descriptor of the page that the launcher reads; -1: none
  std::string lease;  // token of the output folder's; empty: another process holds it
  bool continues = false;     // an earlier start of this run had begun to train
  std::string configuration;  // that the launcher has resolved: bytes of config/handover.h
  // For want of memory in a first update: what this start does without, as words that change the
  // configuration and have changed it; and does the launcher start again with less?
  std::string given_up;
  bool may_give_up = false;
  // CPU ranks of one machine share memory; SKEIN_SHARED_MEMORY=0 of the user: no.
  bool shared_memory = true;
};

// Descriptors that a rank inherits under their own numbers; -1: it gets none.
struct Inherited {
  int secret = -1;  // of the control store; another launcher's rank has none
  int configuration = -1;
};

// Call once: the descriptors of secret and configuration are closed afterwards. Throws UserError
// when this process was not started by the launcher, or a variable makes no sense.
RankEnvironment from_environment();

// The variables that from_environment() reads. Secret and configuration travel as `inherited`.
std::vector<std::pair<std::string, std::string>> to_environment(const RankEnvironment& rank,
                                                                const Inherited& inherited);

// Every rank gets these too, whoever starts it, so that all compute the same bits; what the user
// has set stays.
inline constexpr std::pair<const char*, const char*> kMathVariables[] = {
    {"MKL_DYNAMIC", "FALSE"},  // a thread count that varies varies the sums
    {"MKL_CBWR", "AUTO"}};     // same bits for any alignment of the buffers

// Throws CommError when the launcher's store cannot be joined within that time.
std::unique_ptr<Store> connect_store(const RankEnvironment& rank,
                                     std::chrono::milliseconds join_timeout);

}  // namespace skein::launch
