// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A conversation as data has it, and as a model is trained on it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::text {

struct Message {
  std::string role;
  std::string content;
  std::optional<bool> trained;  // the row's own word (`train`, `weight`), if any
  std::string extra_json;       // tool_calls and other fields as JSON text, empty: none
};

struct Conversation {
  std::vector<Message> messages;
  std::string tools_json;  // empty: none
};

struct MaskedTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // one per id: 1 where the id is a target
  uint32_t empty_turns = 0;      // trained on, and nothing but their end is there to learn
};

enum class TrainedTurns : uint8_t { kAssistant, kLast, kAll };

// As commands say it, and the keys of what is stored.
constexpr std::string_view turns_name(TrainedTurns turns) {
  switch (turns) {
    case TrainedTurns::kAssistant:
      return "assistant";
    case TrainedTurns::kLast:
      return "last";
    case TrainedTurns::kAll:
      break;
  }
  return "all";
}

}  // namespace skein::text
