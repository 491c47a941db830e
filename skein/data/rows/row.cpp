// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "skein/core/error.h"
#include "skein/data/rows/column_hints.h"
#include "skein/data/rows/row_columns.h"
#include "skein/data/rows/row_message.h"
#include "skein/data/rows/row_parts.h"

namespace skein::data {
namespace {

using text::Conversation;

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

Row from_alpaca(const RowColumns& row) {
  auto conversation = alpaca_prompt(row);
  conversation.messages.push_back({.role = "assistant", .content = text_of(row, "output")});
  return with_system(conversation_row(std::move(conversation)), text_of(row, "system"));
}

void refuse_preferences(const RowColumns& row) {
  const auto has = [&](const char* name) {
    return has_content(row, name) && *row.find(name) != "";
  };
  const bool has_chosen = has("chosen"), has_rejected = has("rejected");
  if (!has_chosen && !has_rejected) return;
  throw IoError(fmt::format(
      "the row holds {}; to fine-tune on one answer give \"prompt\" and \"completion\"",
      has_chosen && has_rejected
          ? "preferences (\"chosen\", \"rejected\"): stage=dpo or stage=rm trains on such rows"
          : "an answer that was judged alone (\"chosen\" or \"rejected\"): stage=kto trains on "
            "such rows"));
}

// Answers that somebody has found bad would be learned like the good ones.
void refuse_judged(const RowColumns& row) {
  const auto* label = row.find("label");
  const bool is_judged =
      row.find("kto_tag") != nullptr || (label != nullptr && label->is_boolean());
  if (!is_judged) return;
  throw IoError(fmt::format(
      "the row's answer was judged (\"{0}\"), which stage=kto trains on: a file of good "
      "answers alone is made by `jq -c 'select(.{0}) | del(.{0})' OLD.jsonl > NEW.jsonl`",
      row.find("kto_tag") != nullptr ? "kto_tag" : "label"));
}

// What makes rows of other columns rows that are known; all others stay, as a label.
std::string renaming(const RowColumns& row) {
  const auto question = first_of(row, {"instruction", "question", "query", "prompt", "problem",
                                       "user", "human", "source", "input"});
  const auto answer = first_of(row, {"output", "answer", "response", "completion", "solution",
                                     "assistant", "reply", "target"});
  const auto list = first_of(row, {"conversation", "dialog", "dialogue", "chat", "turns"});
  const auto text = first_of(row, {"content", "document", "body", "article"});
  if (question == "instruction" && answer == "output") return "; null is absent";
  if (!question.empty() && !answer.empty()) {
    const auto* prompt = row.find("prompt");
    if (prompt && prompt->is_array() && answer != "completion") {
      return "; rename it: " + renaming_command({{"completion", {answer}}});
    }
    std::vector<Renaming> renamings;
    if (question != "instruction") renamings.push_back({"instruction", {question}});
    if (answer != "output") renamings.push_back({"output", {answer}});
    return fmt::format(
        "; rename them: {} (or prompt and completion, which no template is put around)",
        renaming_command(renamings));
  }
  if (!list.empty()) return "; rename it: " + renaming_command({{"messages", {list}}});
  if (!text.empty()) return "; rename it: " + renaming_command({{"text", {text}}});
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
  refuse_judged(row);
  return row_of(row);
}

Row row_of(const RowColumns& row) {
  refuse_preferences(row);
  refuse_media(row);
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
