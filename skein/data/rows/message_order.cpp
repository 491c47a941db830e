// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/message_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"

namespace skein::data {
namespace {

// `before` is empty at the start.
bool may_follow(std::string_view role, std::string_view before) {
  const bool at_start = before.empty() || is_system(before);
  if (is_system(role)) return before.empty();
  if (role == "user") return at_start || before == "assistant";
  if (role == "assistant") return before == "user" || before == "tool";
  return before == "assistant" || before == "tool";
}

std::string_view expected_after(std::string_view before) {
  if (before.empty()) return "the system or the user";
  if (is_system(before)) return "the user";
  if (before == "assistant") return "the user or a tool";
  if (before == "user") return "the assistant";
  return "the assistant or a tool";
}

}  // namespace

bool is_system(std::string_view role) { return role == "system" || role == "developer"; }

namespace {

void check_turns(std::span<const text::Message> messages) {
  std::string_view before;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string_view role = messages[i].role;
    if (!may_follow(role, before)) {
      const auto after =
          before.empty() ? std::string("at the start") : fmt::format("after the {}'s", before);
      throw IoError(fmt::format("roles out of order: message {} is the {}'s, {} {} was expected",
                                i + 1, role, after, expected_after(before)));
    }
    before = role;
  }
}

}  // namespace

void check_order(std::span<const text::Message> messages) {
  check_turns(messages);
  if (std::ranges::find(messages, "assistant", &text::Message::role) == messages.end()) {
    throw IoError("no message is the assistant's: nothing to train on");
  }
}

void check_prompt_order(std::span<const text::Message> messages) {
  check_turns(messages);
  const auto last = messages.empty() ? std::string_view() : std::string_view(messages.back().role);
  if (last == "user" || last == "tool") return;
  throw IoError("no message is the user's: nothing to answer");
}

}  // namespace skein::data
