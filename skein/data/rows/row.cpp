// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "skein/core/error.h"
#include "skein/data/rows/message_order.h"
#include "skein/data/rows/row_columns.h"
#include "skein/data/rows/row_message.h"

namespace skein::data {
namespace {

using text::Conversation;
using text::Message;

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

Row conversation_row(Conversation conversation, size_t prompt_messages = 0) {
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

Row from_list(const RowColumns& row, std::string_view column) {
  return with_system(conversation_row(conversation_in(row, column)), text_of(row, "system"));
}

Row from_prompt_and_completion(const RowColumns& row) {
  const auto& prompt = *row.find("prompt");
  const auto& completion = *row.find("completion");
  if (prompt.is_string() && completion.is_string()) {
    refuse_system(row, "a \"prompt\" and \"completion\" of plain text");
    return {.kind = Row::Kind::kPromptCompletion,
            .text = prompt.get<std::string>(),
            .completion = completion.get<std::string>(),
            .conversation = {}};
  }
  if (!prompt.is_array() || !completion.is_array()) {
    throw IoError(
        fmt::format("\"prompt\" and \"completion\" must both be strings or both lists of messages, "
                    "found {} and {}",
                    kind_of(prompt), kind_of(completion)));
  }
  Conversation conversation;
  append_messages(prompt, "prompt", conversation);
  const size_t before = conversation.messages.size();
  append_messages(completion, "completion", conversation);
  add_tools(row, conversation);
  return with_system(conversation_row(std::move(conversation), before), text_of(row, "system"));
}

Row from_text(const RowColumns& row) {
  refuse_system(row, "\"text\"");
  return {.text = text_of(row, "text"), .completion = {}, .conversation = {}};
}

void add_turn(std::string question, std::string answer, Conversation& out) {
  out.messages.push_back({.role = "user", .content = std::move(question)});
  out.messages.push_back({.role = "assistant", .content = std::move(answer)});
}

Row from_alpaca(const RowColumns& row) {
  Conversation conversation;
  if (const auto* history = row.find("history")) {
    constexpr const char* kExpected = "\"history\" must be a list of [question, answer]";
    if (!history->is_array()) throw IoError(kExpected);
    for (const auto& turn : *history) {
      if (!turn.is_array() || turn.size() != 2) throw IoError(kExpected);
      add_turn(text_of(turn[0], "history"), text_of(turn[1], "history"), conversation);
    }
  }
  auto question = text_of(row, "instruction");
  const auto input = text_of(row, "input");
  if (!question.empty() && !input.empty()) question += '\n';
  add_turn(question + input, text_of(row, "output"), conversation);
  return with_system(conversation_row(std::move(conversation)), text_of(row, "system"));
}

// What some columns say about a row that this kind of training cannot use.
void refuse_other_kinds(const RowColumns& row) {
  constexpr std::array kKinds = {
      std::pair{"chosen",
                "preferences (\"chosen\", \"rejected\"), of which one must be picked: "
                "give \"prompt\" and \"completion\""},
      std::pair{"rejected",
                "preferences (\"chosen\", \"rejected\"), of which one must be picked: "
                "give \"prompt\" and \"completion\""},
      std::pair{"image", "an image"},
      std::pair{"images", "images"},
      std::pair{"videos", "videos"},
      std::pair{"audios", "audio"},
      std::pair{"input_ids", "token ids; give the text itself"}};
  for (const auto& [column, what] : kKinds) {
    const auto* value = row.find(column);
    if (value && !value->empty()) {
      throw IoError(fmt::format("the row holds {}; only text is trained on here", what));
    }
  }
}

// The first of `names` that the row has; empty: none.
std::string first_of(const RowColumns& row, std::initializer_list<std::string_view> names) {
  const auto found = std::ranges::find_if(names, [&](auto name) { return row.has(name); });
  return found == names.end() ? "" : std::string(*found);
}

// What makes rows of other columns rows that are known.
std::string renaming(const RowColumns& row) {
  const auto question = first_of(row, {"question", "query", "instruction", "prompt", "problem",
                                       "user", "human", "source", "input"});
  const auto answer = first_of(row, {"answer", "response", "output", "completion", "solution",
                                     "assistant", "reply", "target"});
  const auto list = first_of(row, {"conversation", "dialog", "dialogue", "chat", "turns"});
  const auto text = first_of(row, {"content", "document", "body", "article"});
  const auto command = [](const std::string& object) {
    return fmt::format("; rename them: jq -c '{{{}}}' FILE > NEW.jsonl", object);
  };
  if (question == "instruction" && answer == "output") return "; null is absent";
  if (!question.empty() && !answer.empty()) {
    return command(fmt::format("instruction: .{}, output: .{}", question, answer)) +
           " (or prompt and completion, which no template is put around)";
  }
  if (!list.empty()) return command("messages: ." + list);
  if (!text.empty()) return command("text: ." + text);
  return "; rename them to one of these";
}

}  // namespace

Conversation parse_conversation(std::string_view json) {
  const auto first = json.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && json[first] == '[') {
    Conversation conversation;
    append_messages(parse_ordered(json), "messages", conversation);
    return conversation;
  }
  const RowColumns row(json);
  const std::string_view column = row.find("messages") ? "messages" : "conversations";
  if (!row.find(column)) {
    throw IoError(fmt::format(
        "expected a list of messages, or an object with \"messages\"; the object has {}",
        row.names()));
  }
  return with_system(conversation_in(row, column), text_of(row, "system"));
}

Row parse_row(std::string_view json) {
  const RowColumns row(json);
  refuse_other_kinds(row);
  if (row.find("messages")) return from_list(row, "messages");
  if (row.find("conversations")) return from_list(row, "conversations");
  if (row.find("prompt") && row.find("completion")) return from_prompt_and_completion(row);
  if (row.find("instruction") && row.find("output")) return from_alpaca(row);
  if (row.find("text")) return from_text(row);
  throw UnknownColumns(fmt::format(
      "expected \"messages\", \"conversations\", \"prompt\" and \"completion\", \"instruction\" "
      "and \"output\", or \"text\"; the row has {}{}",
      row.names(), renaming(row)));
}

}  // namespace skein::data
