// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Do all nodes run the same program on the same configuration and data, into one folder?
//
// Each node tells this before any process group exists; node 0 compares.

#include <optional>
#include <span>
#include <string>

#include "skein/core/file.h"

namespace skein::launch {

struct NodeIdentity {
  int node = 0;
  std::string host;
  int local_ranks = 0;
  std::string device;              // "cuda", "cpu"
  std::string binary;              // digest of skein and skein-worker
  std::string configuration;       // digest of the resolved configuration
  std::string configuration_text;  // to name the first line that differs
  std::string data;                // digest of the prepared data
  std::string output_dir;
  std::string output_problem;  // why it cannot use the folder; empty: it can
  bool sees_token = true;      // node 0's token file is there: one shared folder
};

// Sets the digest and the text, "key: value" lines, without what may differ from node to node:
// where data lies (its digest decides), caches and threads, and with save_on_each_node output_dir.
void set_configuration(NodeIdentity& identity, const std::string& yaml);

std::string encode(const NodeIdentity& identity);  // JSON
std::optional<NodeIdentity> decode_identity(const std::string& text);

// Digest of this program's files.
std::string binary_digest();

// Node 0 writes OUTPUT_DIR/.skein-node-token and takes it away in the end; the others look for it.
// Both show that they can write there. The first two return what went wrong, empty: nothing.
std::string write_token(const fs::path& output, const std::string& token);
std::string try_to_write(const fs::path& output);
bool sees_token(const fs::path& output, const std::string& token);
void remove_token(const fs::path& output);

// Nothing when they agree; else one message that names the nodes, what differs and what to do.
// `needs_shared_output` is false with save_on_each_node, which needs folders that are not shared.
// The first node is the one that the others are compared with.
std::optional<std::string> find_difference(std::span<const NodeIdentity> nodes,
                                           bool needs_shared_output);

}  // namespace skein::launch
