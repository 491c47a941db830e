// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/hash.h"
#include "skein/core/json.h"
#include "skein/text/jinja/json_value.h"
#include "skein/text/parts/unicode.h"
#include "skein/text/tokenizer_files.h"

namespace skein::text {

using jinja::Dict;
using jinja::Value;

struct ChatTemplate::Source {
  std::string name;  // for messages
  std::string text;
  std::string tool_use;  // empty: none
};

namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

using Sources =
    std::map<std::string, std::pair<std::string, std::string>>;  // file and text by name

std::string valid(const std::string& text) {
  return valid_utf8_prefix(text) < text.size() ? repaired_utf8(text) : text;
}

Value parsed(const std::string& json, const std::string& what) {
  try {
    return jinja::value_of_json(json);
  } catch (const JsonError& error) {
    throw UserError(json_message(error, json, what));
  }
}

// chat_template of tokenizer_config.json or chat_template.json: a text, or a list of named ones.
void add_sources_of_config(const fs::path& folder, const char* name, Sources& sources) {
  std::error_code ignored;
  const auto file = folder / name;
  if (!fs::is_regular_file(file, ignored)) return;
  const auto config = parse_json<UserError>(read_beneath(folder, name, kMaxConfigBytes),
                                            file.string(), {.bytes = kMaxConfigBytes});
  if (!config.is_object()) throw UserError(file.string() + ": not a JSON object");
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return;
  const auto label = file.string() + ": chat_template";
  if (found->is_string()) {
    sources["default"] = {label, found->get<std::string>()};
    return;
  }
  const auto add = [&](const nlohmann::json& name, const nlohmann::json& text) {
    if (!name.is_string() || !text.is_string()) {
      throw UserError(label + " is neither a text nor a list of {name, template}");
    }
    sources[name] = {fmt::format("{} '{}'", label, name.get<std::string>()), text};
  };
  if (found->is_object()) {
    for (const auto& [name, text] : found->items()) add(name, text);
    return;
  }
  for (const auto& entry : *found) {
    if (!entry.is_object()) add(nullptr, nullptr);
    add(entry.value("name", nlohmann::json()), entry.value("template", nlohmann::json()));
  }
}

void add_source(const fs::path& folder, const fs::path& file, const std::string& name,
                Sources& sources) {
  std::error_code ignored;
  if (!fs::is_regular_file(folder / file, ignored)) return;
  sources[name] = {(folder / file).string(),
                   read_beneath(folder, file, jinja::Template::kMaxBytes)};
}

// All templates of a folder. Files win over what tokenizer_config.json says, as in transformers.
Sources sources_in(const fs::path& folder) {
  Sources sources;
  if (folder.empty()) return sources;
  add_sources_of_config(folder, "chat_template.json", sources);
  add_sources_of_config(folder, "tokenizer_config.json", sources);
  Sources files;
  add_source(folder, "chat_template.jinja", "default", files);
  for (const auto& name : tokenizer_files_in(folder)) {
    const fs::path file(name);
    if (file.has_parent_path()) add_source(folder, file, file.stem().string(), files);
  }
  return files.empty() ? sources : files;
}

[[noreturn]] void refuse_without(const ChatTemplateOptions& options) {
  throw UserError(fmt::format(
      "{} has no chat template: set template to the format that the model was trained "
      "with ({}), or chat_template to a file with a Jinja template; on the command line "
      "--template NAME or --chat-template FILE",
      options.folder.empty() ? "the model" : options.folder.string(),
      fmt::join(built_in_templates(), ", ")));
}

// axolotl and others have one key for files and for formats that they know.
std::string built_in_hint(const std::string& name) {
  if (name == "tokenizer_default") return "; leave it out: the model folder's own is the default";
  const auto known = built_in_templates();
  if (std::ranges::count(known, name) == 0) return "";
  return fmt::format("; a format that skein knows is named by template: {}", name);
}

std::vector<std::string> names_of(const Sources& sources) {
  std::vector<std::string> names;
  for (const auto& [name, source] : sources) names.push_back(name);
  return names;
}

void check_file(const std::string& file, const ChatTemplateOptions& options,
                const Sources& sources) {
  std::error_code ignored;
  if (fs::is_regular_file(file, ignored)) return;
  if (fs::exists(file, ignored)) {
    throw UserError(
        fmt::format("chat_template: {} is no regular file: every process of a run reads it, so put "
                    "the template into a file",
                    file));
  }
  const auto own = sources.size() < 2
                       ? ""
                       : fmt::format("; templates of {} are {}", options.folder.string(),
                                     fmt::join(names_of(sources), ", "));
  throw UserError(
      fmt::format("chat_template: there is no file {}{}{}", file, built_in_hint(file), own));
}

// transformers copies a message's reasoning to the names that templates know it by.
Dict with_reasoning(Dict message) {
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const auto* found = message.find(key);
    if (!found || found->is_none()) continue;
    const Value reasoning = *found;
    Dict result;
    result.set("thinking", reasoning);
    for (const auto& [name, value] : message.entries()) result.set(name, value);
    result.set("reasoning_content", reasoning);
    return result;
  }
  return message;
}

Value value_of(const Message& message, size_t number) {
  Dict dict;
  dict.set("role", Value(valid(message.role)));
  dict.set("content", Value(valid(message.content)));
  if (!message.extra_json.empty()) {
    const auto place = fmt::format("message {}", number);
    const auto extra = parsed(message.extra_json, place);
    if (!extra.dict()) throw UserError(place + ": its other fields are no JSON object");
    for (const auto& [name, value] : extra.dict()->entries()) dict.set(name, value);
  }
  return Value(with_reasoning(std::move(dict)));
}

}  // namespace

ChatTemplate::ChatTemplate(const Source& source, const std::map<std::string, std::string>& tokens)
    : text_(source.text), default_(source.text, source.name), tokens_(tokens) {
  if (!source.tool_use.empty()) tool_use_.emplace(source.tool_use, source.name + " (tool_use)");
  std::string all = skein::digest(source.text) + skein::digest(source.tool_use);
  for (const auto& [name, token] : tokens) all += fmt::format("{}={}\n", name, token);
  digest_ = skein::digest(all);
}

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& name,
                                 const std::map<std::string, std::string>& tokens) {
  return {Source{.name = name, .text = std::string(source), .tool_use = {}}, tokens};
}

std::optional<ChatTemplate> ChatTemplate::find(const ChatTemplateOptions& options) {
  const auto tokens = special_tokens_of(options.folder);
  if (!options.file.empty() && !options.name.empty()) {
    throw UserError("template and chat_template are both set: leave one out");
  }
  if (!options.name.empty()) {
    return parse(built_in_template(options.name), "template: " + options.name, tokens);
  }
  auto sources = sources_in(options.folder);
  if (!options.file.empty()) {
    if (const auto named = sources.find(options.file); named != sources.end()) {
      return parse(named->second.second, named->second.first, tokens);
    }
    check_file(options.file, options, sources);
    return parse(read_file(options.file, jinja::Template::kMaxBytes), options.file, tokens);
  }
  if (sources.empty()) return std::nullopt;
  if (!sources.contains("default")) {
    throw UserError(
        fmt::format("{} has several chat templates and no default: set chat_template to "
                    "one of {}",
                    options.folder.string(), fmt::join(names_of(sources), ", ")));
  }
  const auto& [name, text] = sources["default"];
  return ChatTemplate({.name = name, .text = text, .tool_use = sources["tool_use"].second}, tokens);
}

ChatTemplate ChatTemplate::open(const ChatTemplateOptions& options) {
  auto found = find(options);
  if (!found) refuse_without(options);
  return std::move(*found);
}

const jinja::Template& ChatTemplate::template_for(const Conversation& conversation) const {
  return tool_use_ && !conversation.tools_json.empty() ? *tool_use_ : default_;
}

bool ChatTemplate::has_generation(const Conversation& conversation) const {
  return template_for(conversation).has_generation();
}

jinja::Rendered ChatTemplate::render(const Conversation& conversation,
                                     const ChatRenderOptions& options) const {
  const size_t count = options.num_messages.value_or(conversation.messages.size());
  std::vector<Value> messages;
  messages.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    messages.push_back(value_of(conversation.messages[i], i + 1));
  }
  Dict variables;
  for (const auto& [name, token] : tokens_) variables.set(name, Value(token));
  if (!options.extra_json.empty()) {
    const auto extra = parsed(options.extra_json, "the template's variables");
    if (!extra.dict()) throw UserError("the template's variables are no JSON object");
    for (const auto& [name, value] : extra.dict()->entries()) variables.set(name, value);
  }
  const auto& tools = conversation.tools_json;
  variables.set("messages", Value::list(std::move(messages)));
  variables.set("tools", tools.empty() ? Value::none() : parsed(tools, "tools"));
  if (!variables.find("documents")) variables.set("documents", Value::none());
  variables.set("add_generation_prompt", Value(options.add_generation_prompt));
  return template_for(conversation)
      .render(variables, {.limits = {.steps = options.max_steps}, .now = std::nullopt});
}

std::map<std::string, std::string> special_tokens_of(const fs::path& folder) {
  std::map<std::string, std::string> tokens;
  if (folder.empty()) return tokens;
  for (const char* name : kNamingFiles) {
    std::error_code ignored;
    if (!fs::is_regular_file(folder / name, ignored)) continue;
    const auto text = read_beneath(folder, name, kMaxConfigBytes);
    const auto config =
        parse_json<UserError>(text, (folder / name).string(), {.bytes = kMaxConfigBytes});
    if (!config.is_object()) continue;
    for (const auto& [key, value] : config.items()) {
      const auto& token = value.is_object() && value.contains("content") ? value["content"] : value;
      if (key.ends_with("_token") && token.is_string()) tokens.emplace(key, token);
    }
  }
  return tokens;
}

}  // namespace skein::text
