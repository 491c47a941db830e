// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/syntax/node.h"

#include <fmt/format.h>

#include "skein/core/error.h"

namespace skein::config {

std::string Origin::place() const {
  switch (kind) {
    case Kind::kDefault:
      return "default";
    case Kind::kCommandLine:
      return "command line";
    case Kind::kEnvironment:
      return fmt::format("environment: {}", file);
    default:
      return fmt::format("{}:{}:{}", file, line, column);
  }
}

std::string Origin::text() const {
  return spelling.empty() ? place() : fmt::format("{} ({})", place(), spelling);
}

const Node* Node::find(const std::string& key) const {
  for (const auto& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::string Node::shown() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kScalar:
      return text;
    case Kind::kMap:
      return "{…}";
    case Kind::kList:
      break;
  }
  std::string list;
  for (const auto& item : items) list += (list.empty() ? "" : ", ") + item.shown();
  return "[" + list + "]";
}

Node scalar(std::string text, Origin origin) {
  return Node{.kind = Node::Kind::kScalar, .text = std::move(text), .origin = std::move(origin)};
}

void refuse(const Origin& origin, const std::string& message) {
  throw UserError(fmt::format("{}: {}", origin.place(), message));
}

}  // namespace skein::config
