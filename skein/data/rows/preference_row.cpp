// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/preference_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "skein/core/error.h"
#include "skein/data/rows/column_hints.h"
#include "skein/data/rows/message_order.h"
#include "skein/data/rows/row_columns.h"
#include "skein/data/rows/row_message.h"
#include "skein/data/rows/row_parts.h"

namespace skein::data {
namespace {

using text::Conversation;
using text::Message;

constexpr const char* kNoBoundary =
    "\"chosen\" and \"rejected\" share no beginning that could be their prompt: give \"prompt\", "
    "or "
    "lists of messages";

struct Prompt {
  std::optional<std::string> text;  // absent: the conversation
  Conversation conversation;
};

Row text_row(std::string_view prompt, std::string_view completion) {
  return {.kind = Row::Kind::kPromptCompletion,
          .text = std::string(prompt),
          .completion = std::string(completion),
          .conversation = {}};
}

// A text is one message of that role.
Conversation messages_in(const OrderedJson& value, std::string_view column, const char* role) try {
  Conversation out;
  if (value.is_string()) {
    out.messages.push_back({.role = role, .content = value.get<std::string>()});
    return out;
  }
  if (!value.is_object() && !value.is_array()) {
    throw IoError(fmt::format("a text, a message or a list of messages was expected, found {}",
                              kind_of(value)));
  }
  if (value.is_object()) out.messages.push_back(parse_message(value, 1));
  if (value.is_array()) append_messages(value, column, out);
  return out;
} catch (const IoError& error) {
  const std::string why = error.what();
  throw IoError(why.starts_with('"') ? why : fmt::format("\"{}\": {}", column, why));
}

std::optional<Prompt> prompt_in(const RowColumns& row) {
  for (const char* column : {"messages", "conversations"}) {
    if (row.find(column)) return Prompt{.text = {}, .conversation = conversation_in(row, column)};
  }
  if (const auto* prompt = row.find("prompt")) {
    if (prompt->is_string()) return Prompt{prompt->get<std::string>(), {}};
    return Prompt{.text = {}, .conversation = messages_in(*prompt, "prompt", "user")};
  }
  if (row.find("instruction") || row.find("input")) {
    return Prompt{.text = {}, .conversation = alpaca_prompt(row)};
  }
  return std::nullopt;
}

bool are_alike(const Message& left, const Message& right) {
  return left.role == right.role && left.content == right.content &&
         left.extra_json == right.extra_json;
}

size_t shared_messages(std::span<const Message> left, std::span<const Message> right) {
  return static_cast<size_t>(std::ranges::mismatch(left, right, are_alike).in1 - left.begin());
}

bool is_asked(const Message& message) { return message.role == "user" || is_system(message.role); }

// An answer that begins with the question holds the whole conversation.
bool are_whole(const Conversation& chosen, const Conversation& rejected) {
  return is_asked(chosen.messages[0]) && is_asked(rejected.messages[0]);
}

// Some sets hold the conversation, or one answer of it, once more beside both of them.
bool is_repeated(const Conversation& prompt, const Conversation& chosen,
                 const Conversation& rejected) {
  const auto begins = [&](const Conversation& answer) {
    return shared_messages(prompt.messages, answer.messages) == prompt.messages.size();
  };
  const auto equals = [&](const Conversation& answer) {
    return begins(answer) && answer.messages.size() == prompt.messages.size();
  };
  return (begins(chosen) && begins(rejected)) || equals(chosen) || equals(rejected);
}

// Nothing before the answer is trained on, whatever the row says.
Row conversation_of(const RowColumns& row, Conversation conversation, size_t prompt_messages,
                    std::string_view column) {
  auto& messages = conversation.messages;
  const auto answer = std::span(messages).subspan(prompt_messages);
  if (std::ranges::find(answer, "assistant", &Message::role) == answer.end()) {
    throw IoError(fmt::format("\"{}\" has no message of the assistant", column));
  }
  for (auto& message : std::span(messages).first(prompt_messages)) {
    if (message.trained) message.trained = false;
  }
  add_tools(row, conversation);
  return with_system(conversation_row(std::move(conversation), prompt_messages),
                     text_of(row, "system"));
}

Row behind(const RowColumns& row, Conversation prompt, Conversation answer,
           std::string_view column) {
  const size_t before = prompt.messages.size();
  auto& messages = prompt.messages;
  messages.insert(messages.end(), std::make_move_iterator(answer.messages.begin()),
                  std::make_move_iterator(answer.messages.end()));
  return conversation_of(row, std::move(prompt), before, column);
}

PreferenceRow whole_conversations(const RowColumns& row, Conversation chosen,
                                  Conversation rejected) {
  const auto fewer = std::min(chosen.messages.size(), rejected.messages.size());
  // Of answers that are equal, or of which one goes on, the last message stays an answer.
  const auto shared = std::min(shared_messages(chosen.messages, rejected.messages), fewer - 1);
  if (shared == 0) throw IoError(kNoBoundary);
  for (const auto* answer : {&chosen, &rejected}) {
    if (!is_asked(answer->messages[shared])) continue;
    throw IoError(fmt::format(
        "\"chosen\" and \"rejected\" differ first in message {}, which is the {}'s: two answers to "
        "one question were expected",
        shared + 1, answer->messages[shared].role));
  }
  return {.chosen = conversation_of(row, std::move(chosen), shared, "chosen"),
          .rejected = conversation_of(row, std::move(rejected), shared, "rejected"),
          .margin = {}};
}

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : " and ") + shown_name(name);
  return text;
}

// A question under a name that is not read would be lost, and what both answers begin with be taken
// for it.
void refuse_unread_question(std::string_view json) {
  const auto columns = parse_ordered(json);
  auto names = question_columns(columns);
  if (names.empty()) return;
  if (names.size() > 1) std::erase(names, "history");  // read beside an instruction
  const bool are_texts =
      std::ranges::all_of(names, [&](const auto& name) { return columns.at(name).is_string(); });
  const auto what = fmt::format("the row has {} and no \"prompt\"", quoted(names));
  const auto dropping = dropping_command(names);
  if (dropping.empty()) throw UnknownColumns(what + ": rename what was asked");
  if (!are_texts) {
    const auto list = std::ranges::find_if(
        names, [&](const auto& name) { return !columns.at(name).is_string(); });
    names = {*list};
  }
  throw UnknownColumns(
      fmt::format("{}: rename what was asked, `{}`{}, or drop what is no question, `{}`", what,
                  renaming_command({{are_texts ? "instruction" : "prompt", names}}),
                  are_texts ? " (or prompt, which no template is put around)" : "", dropping));
}

// What both texts begin with, less a blank at its end, which most tokenizers put before a word.
PreferenceRow whole_texts(const RowColumns& row, std::string_view chosen,
                          std::string_view rejected) {
  refuse_system(row, "\"chosen\" and \"rejected\" of plain text");
  const auto fewer = std::min(chosen.size(), rejected.size());
  auto shared = static_cast<size_t>(std::ranges::mismatch(chosen, rejected).in1 - chosen.begin());
  shared = std::min(shared, fewer == 0 ? 0 : fewer - 1);  // something stays an answer
  const auto is_inside = [&](std::string_view text) {
    return (static_cast<unsigned char>(text[shared]) & 0xC0) == 0x80;  // of a character
  };
  while (shared > 0 && (is_inside(chosen) || is_inside(rejected))) --shared;
  if (shared > 0 && chosen[shared - 1] == ' ') --shared;
  if (shared == 0) throw IoError(kNoBoundary);
  const auto prompt = chosen.substr(0, shared);
  return {.chosen = text_row(prompt, chosen.substr(shared)),
          .rejected = text_row(prompt, rejected.substr(shared)),
          .margin = {}};
}

// The prompt's own column says nothing new then, or it is refused.
void require_repeated(const std::string& prompt, const Conversation& chosen) {
  if (std::ranges::find(chosen.messages, prompt, &Message::content) != chosen.messages.end()) {
    return;
  }
  throw IoError(
      "\"chosen\" and \"rejected\" are whole conversations, and \"prompt\" is none of their "
      "messages: give it as one of them, or drop it: jq -c 'del(.prompt)' FILE > NEW.jsonl");
}

PreferenceRow pair_in(const RowColumns& row, std::string_view json, const OrderedJson& chosen,
                      const OrderedJson& rejected) {
  const bool are_texts = chosen.is_string() && rejected.is_string();
  auto prompt = prompt_in(row);
  if (!prompt && are_texts) {
    refuse_unread_question(json);
    return whole_texts(row, chosen.get_ref<const std::string&>(),
                       rejected.get_ref<const std::string&>());
  }
  if (prompt && prompt->text && are_texts) {
    refuse_system(row, "a \"prompt\" and answers of plain text");
    return {.chosen = text_row(*prompt->text, chosen.get_ref<const std::string&>()),
            .rejected = text_row(*prompt->text, rejected.get_ref<const std::string&>()),
            .margin = {}};
  }
  auto better = messages_in(chosen, "chosen", "assistant");
  auto worse = messages_in(rejected, "rejected", "assistant");
  if (!prompt) {
    const bool whole = are_whole(better, worse);
    if (!whole || !first_of(row, {"question", "query", "problem"}).empty()) {
      refuse_unread_question(json);
    }
    if (!whole) throw IoError(kNoBoundary);
    return whole_conversations(row, std::move(better), std::move(worse));
  }
  if (prompt->text) {
    if (are_whole(better, worse)) {
      require_repeated(*prompt->text, better);
      return whole_conversations(row, std::move(better), std::move(worse));
    }
    prompt->conversation.messages.push_back({.role = "user", .content = std::move(*prompt->text)});
  } else if (are_whole(better, worse) && is_repeated(prompt->conversation, better, worse)) {
    return whole_conversations(row, std::move(better), std::move(worse));
  }
  return {.chosen = behind(row, prompt->conversation, std::move(better), "chosen"),
          .rejected = behind(row, prompt->conversation, std::move(worse), "rejected"),
          .margin = {}};
}

std::optional<double> margin_in(const RowColumns& row) {
  const auto* margin = row.find("margin");
  if (!margin) return std::nullopt;
  // Stored in single precision.
  if (!margin->is_number() || !std::isfinite(static_cast<float>(margin->get<double>()))) {
    throw IoError(fmt::format("\"margin\" must be a number, found {}",
                              margin->is_number() ? "one that is too large" : kind_of(*margin)));
  }
  return margin->get<double>();
}

bool is_desirable(const OrderedJson& label) {
  if (label.is_boolean()) return label.get<bool>();
  if (label.is_number() && (label == 0 || label == 1)) return label == 1;
  throw IoError(fmt::format("\"label\" (or \"kto_tag\") must be true or false, found {}",
                            label.is_number() ? "another number" : kind_of(label)));
}

// Absent: nobody has judged the row's answer.
std::optional<bool> label_in(const RowColumns& row) {
  const auto* label = row.find("label");
  const auto* tag = row.find("kto_tag");
  if (!label && !tag) return std::nullopt;
  const bool desirable = is_desirable(label ? *label : *tag);
  if (tag && is_desirable(*tag) != desirable) {
    throw IoError(
        fmt::format("\"label\" is {} and \"kto_tag\" {}: drop the one that is wrong, as `{}` does",
                    desirable, !desirable, dropping_command({"kto_tag"})));
  }
  return desirable;
}

// A message that says nothing stands for one that was left out.
bool is_empty_answer(const OrderedJson* answer) {
  if (!answer || answer->is_null()) return true;
  if (answer->is_string()) return answer->get_ref<const std::string&>().empty();
  if (answer->is_array()) {
    return std::ranges::all_of(*answer, [](const auto& entry) { return is_empty_answer(&entry); });
  }
  if (!answer->is_object()) return false;
  const auto& fields = answer->get_ref<const OrderedJson::object_t&>();
  return std::ranges::all_of(fields, [](const auto& field) {
    const bool is_name = field.first == "role" || field.first == "from";
    return is_name || is_empty_answer(&field.second);
  });
}

// The one answer that is there.
FeedbackRow single_answer(const RowColumns& row) {
  const auto* chosen = row.find("chosen");
  const auto* rejected = row.find("rejected");
  const bool desirable = !is_empty_answer(chosen);
  if (desirable == !is_empty_answer(rejected)) {
    throw UnknownColumns(
        desirable ? "the row holds preferences (two answers): stage=dpo or stage=rm trains on such "
                    "rows"
                  : "both \"chosen\" and \"rejected\" are empty: there is no answer to learn from");
  }
  const auto* column = desirable ? "chosen" : "rejected";
  const auto& answer = desirable ? *chosen : *rejected;
  auto prompt = prompt_in(row);
  if (!prompt) {
    throw IoError(fmt::format(
        "\"{}\" has no prompt: give \"prompt\", \"messages\" or \"instruction\"", column));
  }
  if (prompt->text && answer.is_string()) {
    refuse_system(row, "a \"prompt\" and an answer of plain text");
    return {.row = text_row(*prompt->text, answer.get_ref<const std::string&>()),
            .desirable = desirable};
  }
  auto& conversation = prompt->conversation;
  if (prompt->text) {
    conversation.messages.push_back({.role = "user", .content = std::move(*prompt->text)});
  }
  auto said = messages_in(answer, column, "assistant");
  return {.row = behind(row, std::move(conversation), std::move(said), column),
          .desirable = desirable};
}

// What is judged is a completion.
Row with_completion(Row row) {
  if (row.kind == Row::Kind::kText) {
    throw IoError(
        "\"text\" has no prompt that its label could be about: give \"prompt\" and \"completion\"");
  }
  if (row.kind == Row::Kind::kPromptCompletion) return row;
  auto& messages = row.conversation.messages;
  if (row.prompt_messages == 0) {
    if (messages.back().role != "assistant") {
      throw IoError(fmt::format(
          "the last message is the {}'s: the assistant's was expected, which the label judges",
          messages.back().role));
    }
    row.prompt_messages = messages.size() - 1;
  }
  for (auto& message : std::span(messages).first(row.prompt_messages)) {
    if (message.trained) message.trained = false;
  }
  return row;
}

// What makes rows of two answers under other names rows that are known.
std::string pair_renaming(const RowColumns& row) {
  const auto* output = row.find("output");
  if (output && output->is_array() && output->size() == 2) {
    return "; of its two outputs the first is the better one for most: `jq -c '.chosen = "
           ".output[0] | .rejected = .output[1] | del(.output)' OLD.jsonl > NEW.jsonl`";
  }
  constexpr auto kNames =
      std::to_array<std::pair<const char*, const char*>>({{"chosen_response", "rejected_response"},
                                                          {"response_j", "response_k"},
                                                          {"response_chosen", "response_rejected"},
                                                          {"chosen_answer", "rejected_answer"},
                                                          {"preferred", "dispreferred"},
                                                          {"better", "worse"},
                                                          {"winner", "loser"}});
  for (const auto& [better, worse] : kNames) {
    if (!row.has(better) || !row.has(worse)) continue;
    std::vector<Renaming> renamings;
    const bool has_prompt =
        !first_of(row, {"messages", "conversations", "prompt", "instruction", "input"}).empty();
    const auto question = first_of(row, {"question", "query", "problem", "context"});
    if (!has_prompt && !question.empty()) renamings.push_back({"instruction", {question}});
    renamings.push_back({"chosen", {better}});
    renamings.push_back({"rejected", {worse}});
    return fmt::format("; rename them: `{}`", renaming_command(renamings));
  }
  return " (stage=sft trains on rows of one answer)";
}

}  // namespace

PreferenceRow parse_preference(std::string_view json) {
  const RowColumns row(json);
  refuse_media(row);
  const auto* chosen = row.find("chosen");
  const auto* rejected = row.find("rejected");
  if (chosen && rejected) {
    auto pair = pair_in(row, json, *chosen, *rejected);
    pair.margin = margin_in(row);
    return pair;
  }
  if (chosen || rejected) {
    throw UnknownColumns(
        fmt::format("the row has \"{}\" and no \"{}\": stage=kto trains on answers that were "
                    "judged alone",
                    chosen ? "chosen" : "rejected", chosen ? "rejected" : "chosen"));
  }
  if (row.find("label") || row.find("kto_tag")) {
    throw UnknownColumns("the row holds one answer with a label: stage=kto trains on such rows");
  }
  throw UnknownColumns(
      fmt::format("expected \"chosen\" and \"rejected\", with \"prompt\", \"messages\", "
                  "\"conversations\" or \"instruction\"; the row has {}{}",
                  row.names(), pair_renaming(row)));
}

FeedbackRow parse_feedback(std::string_view json) {
  const RowColumns row(json);
  refuse_media(row);
  if (const auto desirable = label_in(row)) {
    const bool has_chosen = !is_empty_answer(row.find("chosen"));
    if (has_chosen != !is_empty_answer(row.find("rejected"))) {
      throw IoError(
          fmt::format("the row has a label beside \"{}\", which says so already: drop it, as `{}` "
                      "does",
                      has_chosen ? "chosen" : "rejected", dropping_command({"label", "kto_tag"})));
    }
    return {.row = with_completion(row_of(row)), .desirable = *desirable};
  }
  if (row.find("chosen") || row.find("rejected")) return single_answer(row);
  throw UnknownColumns(
      fmt::format("expected \"label\" (or \"kto_tag\": true, false) beside \"prompt\" and "
                  "\"completion\", \"messages\", \"conversations\" or \"instruction\"; the row has "
                  "{} (stage=sft trains on rows that nobody has judged)",
                  row.names()));
}

}  // namespace skein::data
