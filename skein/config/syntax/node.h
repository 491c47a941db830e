// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A configuration value before it has a type: text, list or map, and where it was written.

#include <string>
#include <utility>
#include <vector>

namespace skein::config {

struct Origin {
  enum class Kind { kDefault, kFile, kDeepSpeed, kCommandLine, kEnvironment };
  Kind kind = Kind::kDefault;
  std::string file = {};  // kEnvironment: the variable
  int line = 0, column = 0;
  std::string spelling = {};  // the key as it was written, when that is not the canonical one

  // "default", "command line", "environment: NCCL_TIMEOUT", "recipe.yaml:3:5".
  std::string place() const;
  // place(), and the spelling in brackets where there is one.
  std::string text() const;
};

struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Member;

  Kind kind = Kind::kNull;
  std::string text = {};  // scalars: as written, without quotes
  bool quoted = false;
  std::vector<Node> items = {};
  std::vector<Member> members;
  Origin origin = {};

  const Node* find(const std::string& key) const;
  // For messages: the text, "null", "[a, b]" or "{…}".
  std::string shown() const;
};

struct Node::Member {
  std::string key;
  Origin key_origin;
  Node value;
};

// One key with its value; dots join the names of nested keys.
struct Setting {
  std::string key;
  Node value;
  Origin origin;
  int layer = 0;  // of the files and the command line, the higher wins
};

Node scalar(std::string text, Origin origin);

// Throws UserError "<place>: <message>".
[[noreturn]] void refuse(const Origin& origin, const std::string& message);

}  // namespace skein::config
