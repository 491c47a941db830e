// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "skein/cli/commands.h"
#include "skein/cli/flag_set.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/core/log.h"
#include "skein/data/rows/row.h"
#include "skein/text/chat_encoder.h"
#include "skein/text/jinja/json_value.h"

namespace skein::cli {
namespace {

using text::jinja::Value;

constexpr const char* kUsage =
    "skein template render DIR [--messages F]   the text of a conversation (stdin: no F, or -)\n"
    "    [--template NAME | --chat-template F] [--add-generation-prompt] [--variables JSON]\n"
    "    [--tokens [--train assistant|last|all] | --as-is] [--lines]\n"
    "skein template show NAME                   a built-in template\n"
    "skein template list                        their names\n"
    "\n"
    "  DIR          a model's or tokenizer's folder; its template is used unless one is named\n"
    "  --messages   JSON: a list of messages, or an object with `messages` and `tools`, read as "
    "the\n"
    "               rows of training data are\n"
    "  --variables  an object whose entries the template sees, '{\"enable_thinking\": false}'; in\n"
    "               training: {% set enable_thinking = false %} first in a chat_template: FILE\n"
    "  --tokens     one JSON line {\"text\", \"ids\", \"trained\"}: 1 where a token is trained on\n"
    "  --as-is      the template sees messages as they are written, as with transformers'\n"
    "               apply_chat_template: any roles and contents\n"
    "  --lines      JSON lines, one conversation each; one such answer per line, or {\"error\"}\n";

struct Options {
  text::ChatTemplateOptions source;
  text::ChatRenderOptions render;
  std::string messages;
  std::string train = "assistant";
  bool tokens = false;
  bool as_is = false;
  bool lines = false;
};

Options read_options(Arguments arguments) {
  Options options;
  FlagSet flags("skein template render");
  flags.add("messages", options.messages);
  flags.add("template", options.source.name);
  flags.add("chat-template", options.source.file);
  flags.add("add-generation-prompt", options.render.add_generation_prompt);
  flags.add("variables", options.render.extra_json);
  flags.add("train", options.train);
  flags.add("tokens", options.tokens);
  flags.add("as-is", options.as_is);
  flags.add("lines", options.lines);
  const auto words = flags.read(arguments);
  if (words.size() != 1) {
    throw UserError(fmt::format("skein template render takes one folder:\n{}", kUsage));
  }
  if (options.tokens && options.as_is) {
    throw UserError("--as-is shows the text alone: leave it or --tokens out");
  }
  options.source.folder = words[0];
  return options;
}

text::TrainedTurns turns_of(const std::string& word) {
  using enum text::TrainedTurns;
  for (const auto turns : {kAssistant, kLast, kAll}) {
    if (word == text::turns_name(turns)) return turns;
  }
  throw UserError(fmt::format("--train is '{}', expected assistant, last or all", word));
}

// Nothing is read into the messages: a template sees all fields of theirs.
text::Conversation as_it_is(std::string_view json) {
  auto value = text::jinja::value_of_json(json);
  text::Conversation conversation;
  if (const auto* object = value.dict()) {
    if (const auto* tools = object->find("tools"); tools && !tools->is_none()) {
      conversation.tools_json = json_of_value(*tools);
    }
    const auto* messages = object->find("messages");
    value = messages ? *messages : Value();
  }
  if (!value.sequence()) throw IoError("expected a list of messages");
  for (const auto& message : value.sequence()->items) {
    if (!message.dict()) throw IoError("expected a list of messages, each an object");
    conversation.messages.push_back(
        {.role = {}, .content = {}, .trained = {}, .extra_json = json_of_value(message)});
  }
  return conversation;
}

text::Conversation conversation_of(std::string_view json, const std::string& source, bool as_is) {
  try {
    return as_is ? as_it_is(json) : data::parse_conversation(json);
  } catch (const JsonError& error) {
    throw UserError(json_message(error, json, source));
  } catch (const IoError& error) {
    throw UserError(fmt::format("{}: {}", source, error.what()));
  }
}

// Of a file, which may be one of many conversations.
text::Conversation only_conversation(std::string_view json, const std::string& source, bool as_is) {
  try {
    return conversation_of(json, source, as_is);
  } catch (const UserError& error) {
    if (!source.ends_with(".jsonl")) throw;
    throw UserError(fmt::format("{} (one conversation per line is read by --lines < {})",
                                error.what(), source));
  }
}

std::string all_of_stdin() {
  if (::isatty(STDIN_FILENO) == 1) {
    log_info(
        "type a conversation as JSON, [{{\"role\": \"user\", \"content\": \"Hi\"}}], and Ctrl-D");
  }
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

int render(Arguments arguments) {
  const auto options = read_options(arguments);
  const auto chat = text::ChatTemplate::open(options.source);
  std::optional<text::Tokenizer> tokenizer;
  std::optional<text::ChatEncoder> encoder;
  if (options.tokens) {
    tokenizer.emplace(text::Tokenizer::load(options.source.folder));
    encoder.emplace(*tokenizer, chat, turns_of(options.train));
  }
  const auto answer = [&](const text::Conversation& conversation) {
    nlohmann::json line = {{"text", chat.render(conversation, options.render).text}};
    if (!encoder) return line;
    const auto tokens = encoder->encode(conversation);
    line["ids"] = tokens.ids;
    line["trained"] = tokens.trained;
    return line;
  };
  if (!options.lines) {
    const bool from_file = !options.messages.empty() && options.messages != "-";
    const auto source = from_file ? options.messages : "stdin";
    const auto json = from_file ? read_file(options.messages, uint64_t{64} << 20) : all_of_stdin();
    if (!from_file && json.find_first_not_of(" \t\r\n") == std::string::npos) {
      throw UserError(
          "skein template render: no conversation on stdin: give --messages FILE, or echo "
          "'[{\"role\": \"user\", \"content\": \"Hi\"}]' | skein template render DIR");
    }
    const auto line = answer(only_conversation(json, source, options.as_is));
    fmt::print("{}{}", encoder ? line.dump() : line["text"].get<std::string>(),
               encoder ? "\n" : "");
    return 0;
  }
  std::string json;
  for (int64_t number = 1; std::getline(std::cin, json); ++number) {
    nlohmann::json line;
    try {
      line = answer(conversation_of(json, fmt::format("stdin:{}", number), options.as_is));
    } catch (const UserError& error) {
      line = {{"error", error.what()}};
    }
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return 0;
}

}  // namespace

int run_template_command(Arguments arguments) {
  if (arguments.empty()) throw UserError(fmt::format("skein template needs a word:\n{}", kUsage));
  const auto& verb = arguments[0];
  const auto words = arguments.subspan(1);
  if (verb == "--help" || verb == "-h") {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (verb == "render") return render(words);
  if (verb == "list") {
    fmt::print("{}\n", fmt::join(text::built_in_templates(), "\n"));
    return 0;
  }
  if (verb == "show" && words.size() == 1) {
    fmt::print("{}\n", text::built_in_template(words[0]));
    return 0;
  }
  throw UserError(fmt::format("skein template has no '{}'{}\n{}", verb,
                              config::did_you_mean(verb, {"render", "show", "list"}), kUsage));
}

}  // namespace skein::cli
