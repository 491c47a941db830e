// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_parts.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "skein/core/error.h"
#include "skein/data/rows/message_order.h"
#include "skein/data/rows/row_message.h"

namespace skein::data {

using text::Conversation;

const std::string& text_of(const OrderedJson& value, std::string_view column) {
  if (!value.is_string()) {
    throw IoError(fmt::format("\"{}\" must be a string, found {}", column, kind_of(value)));
  }
  return value.get_ref<const std::string&>();
}

// Empty when the column is absent.
std::string text_of(const RowColumns& row, std::string_view column) {
  const auto* value = row.find(column);
  return value ? text_of(*value, column) : "";
}

void append_messages(const OrderedJson& list, std::string_view column, Conversation& out) {
  if (!list.is_array()) {
    throw IoError(
        fmt::format("\"{}\" must be a list of messages, found {}", column, kind_of(list)));
  }
  if (list.empty()) throw IoError(fmt::format("\"{}\" is empty: no message to train on", column));
  for (const auto& entry : list) {
    out.messages.push_back(parse_message(entry, out.messages.size() + 1));
  }
}

void add_tools(const RowColumns& row, Conversation& out) {
  const auto* tools = row.find("tools");
  if (!tools) return;
  const auto parsed = tools->is_string() && !tools->get_ref<const std::string&>().empty()
                          ? parse_tools(tools->get_ref<const std::string&>())
                          : *tools;
  if (parsed.is_string() || parsed.empty()) return;  // none
  if (!parsed.is_array()) {
    throw IoError(fmt::format("\"tools\" must be a list of tools, found {}", kind_of(parsed)));
  }
  out.tools_json = parsed.dump();
}

Row conversation_row(Conversation conversation, size_t prompt_messages) {
  check_order(conversation.messages);
  return {.kind = Row::Kind::kConversation,
          .text = {},
          .completion = {},
          .conversation = std::move(conversation),
          .prompt_messages = prompt_messages};
}

// A conversation's own system message wins over the column.
Conversation with_system(Conversation conversation, std::string system) {
  auto& messages = conversation.messages;
  if (system.empty() || is_system(messages[0].role)) return conversation;
  messages.insert(messages.begin(), {.role = "system", .content = std::move(system)});
  return conversation;
}

Row with_system(Row row, std::string system) {
  const size_t before = row.conversation.messages.size();
  row.conversation = with_system(std::move(row.conversation), std::move(system));
  // Where a completion follows, it is part of the prompt.
  if (row.prompt_messages > 0) {
    row.prompt_messages += row.conversation.messages.size() - before;
  }
  return row;
}

// No template is put around these columns that would have a place for the other.
void refuse_system(const RowColumns& row, std::string_view columns) {
  if (text_of(row, "system").empty()) return;
  throw IoError(fmt::format(
      "the row has a \"system\" beside {}, which no template is put around: give \"messages\", or "
      "drop it: jq -c 'del(.system)' FILE > NEW.jsonl",
      columns));
}

Conversation conversation_in(const RowColumns& row, std::string_view column) {
  Conversation conversation;
  append_messages(*row.find(column), column, conversation);
  add_tools(row, conversation);
  return conversation;
}

Conversation alpaca_prompt(const RowColumns& row) {
  Conversation conversation;
  const auto add = [&](const char* role, std::string content) {
    conversation.messages.push_back({.role = role, .content = std::move(content)});
  };
  if (const auto* history = row.find("history")) {
    constexpr const char* kExpected = "\"history\" must be a list of [question, answer]";
    if (!history->is_array()) throw IoError(kExpected);
    for (const auto& turn : *history) {
      if (!turn.is_array() || turn.size() != 2) throw IoError(kExpected);
      add("user", text_of(turn[0], "history"));
      add("assistant", text_of(turn[1], "history"));
    }
  }
  auto question = text_of(row, "instruction");
  const auto input = text_of(row, "input");
  if (!question.empty() && !input.empty()) question += '\n';
  add("user", question + input);
  return conversation;
}

bool has_content(const RowColumns& row, std::string_view column) {
  const auto* value = row.find(column);
  return value && !value->empty();
}

void refuse_media(const RowColumns& row) {
  constexpr std::array kKinds = {std::pair{"image", "an image"}, std::pair{"images", "images"},
                                 std::pair{"videos", "videos"}, std::pair{"audios", "audio"},
                                 std::pair{"input_ids", "token ids; give the text itself"}};
  for (const auto& [column, what] : kKinds) {
    if (has_content(row, column)) {
      throw IoError(fmt::format("the row holds {}; only text is trained on here", what));
    }
  }
}

}  // namespace skein::data
