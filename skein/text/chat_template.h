// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What text does a conversation have, as the model reads it?
//
// The template is the model's own, a file, or one of ours; they see what templates see in
// transformers: `messages`, `tools`, `documents`, `add_generation_prompt`, the special tokens by
// name, and what else is given. Const calls are thread-safe. See docs/templates.md.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"
#include "skein/text/conversation.h"
#include "skein/text/jinja/template.h"

namespace skein::text {

// Where a template comes from: `file`, else the built-in `name`, else the folder's own.
struct ChatTemplateOptions {
  fs::path folder;   // of the tokenizer: names the special tokens
  std::string file;  // `chat_template`: a file, or the name of one of the folder's templates
  std::string name;  // `template`
};

struct ChatRenderOptions {
  bool add_generation_prompt = false;
  std::string extra_json;              // an object whose entries become variables; empty: none
  std::optional<size_t> num_messages;  // the first of them; without: all
  uint64_t max_steps = jinja::Limits{}.steps;
};

class ChatTemplate {
 public:
  // Throws UserError when there is none, with the built-in names, and when it is broken.
  static ChatTemplate open(const ChatTemplateOptions& options);
  // The same, but none when the folder has no template and none is named.
  static std::optional<ChatTemplate> find(const ChatTemplateOptions& options);
  // `tokens` are the special tokens: bos_token and so on.
  static ChatTemplate parse(std::string_view source, const std::string& name,
                            const std::map<std::string, std::string>& tokens = {});

  // A message is {role, content} and the entries of its extra_json, which win. Throws
  // jinja::TemplateError.
  jinja::Rendered render(const Conversation& conversation,
                         const ChatRenderOptions& options = {}) const;

  // Whether the template marks the assistant's text itself.
  bool has_generation(const Conversation& conversation) const;
  // For messages: the file, or "template: NAME".
  const std::string& name() const { return default_.name(); }
  // Its Jinja text: what conversations without tools are rendered with.
  const std::string& text() const { return text_; }
  // Tells templates apart: 32 hexadecimal digits of their text and the special tokens.
  const std::string& digest() const { return digest_; }

 private:
  struct Source;
  ChatTemplate(const Source& source, const std::map<std::string, std::string>& tokens);
  const jinja::Template& template_for(const Conversation& conversation) const;

  std::string text_;
  jinja::Template default_;
  std::optional<jinja::Template> tool_use_;  // for conversations with tools
  std::map<std::string, std::string> tokens_;
  std::string digest_;
};

// chatml, llama3, …: as `template` takes them, in order.
std::vector<std::string> built_in_templates();
// Its Jinja text. Throws UserError, which suggests one, for a name that is none.
std::string_view built_in_template(const std::string& name);

// The special tokens that tokenizer_config.json and special_tokens_map.json name, by their keys.
std::map<std::string, std::string> special_tokens_of(const fs::path& folder);

}  // namespace skein::text
