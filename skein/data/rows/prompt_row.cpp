// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/prompt_row.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "skein/core/error.h"
#include "skein/data/rows/message_order.h"
#include "skein/data/rows/row_columns.h"
#include "skein/data/rows/row_message.h"
#include "skein/data/rows/row_parts.h"

namespace skein::data {
namespace {

using text::Conversation;

Row asked(const RowColumns& row, Conversation conversation) {
  auto& messages = conversation.messages;
  if (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
  check_prompt_order(messages);
  return {.kind = Row::Kind::kConversation,
          .text = {},
          .completion = {},
          .conversation = with_system(std::move(conversation), text_of(row, "system"))};
}

Row plain_text(const RowColumns& row, std::string text) {
  refuse_system(row, "a \"prompt\" of plain text");
  if (text.empty()) throw IoError("\"prompt\" is empty");
  return {.kind = Row::Kind::kText, .text = std::move(text), .completion = {}, .conversation = {}};
}

Row from_prompt(const RowColumns& row) {
  const auto& prompt = *row.find("prompt");
  if (prompt.is_string()) return plain_text(row, prompt.get<std::string>());
  if (!prompt.is_object() && !prompt.is_array()) {
    throw IoError(fmt::format(
        "\"prompt\" must be a text, a message or a list of messages, found {}", kind_of(prompt)));
  }
  Conversation conversation;
  if (prompt.is_object()) conversation.messages.push_back(parse_message(prompt, 1));
  if (prompt.is_array()) append_messages(prompt, "prompt", conversation);
  add_tools(row, conversation);
  return asked(row, std::move(conversation));
}

Row from_question(const RowColumns& row) {
  Conversation conversation;
  conversation.messages.push_back({.role = "user", .content = text_of(row, "question")});
  if (conversation.messages[0].content.empty()) throw IoError("\"question\" is empty");
  add_tools(row, conversation);
  return asked(row, std::move(conversation));
}

// What makes rows of another column rows that are known.
std::string renaming(const RowColumns& row) {
  for (const char* name : {"query", "problem", "input", "user", "human", "task"}) {
    if (!row.has(name)) continue;
    return fmt::format("; rename it: jq -c '.question = .{0} | del(.{0})' FILE > NEW.jsonl", name);
  }
  return "";
}

}  // namespace

Row parse_prompt(std::string_view json) {
  const RowColumns row(json);
  refuse_media(row);
  for (const char* column : {"messages", "conversations"}) {
    if (row.find(column)) return asked(row, conversation_in(row, column));
  }
  if (row.find("prompt")) return from_prompt(row);
  if (row.find("instruction")) return asked(row, alpaca_prompt(row));
  if (row.find("question")) return from_question(row);
  throw UnknownColumns(
      fmt::format("expected a prompt: \"prompt\", \"messages\", \"conversations\", \"instruction\" "
                  "or \"question\"; the row has {}{}",
                  row.names(), renaming(row)));
}

}  // namespace skein::data
