// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The templates that `template: NAME` means. Each marks the assistant's text, with the token that
// ends its turn and the line feeds behind it, and renders a message alike whatever follows it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/text/chat_template.h"

namespace skein::text {
namespace {

// Puts before a template what they all refuse: what they would leave out without a word.
#define SKEIN_PLAIN_TEXT_ONLY(name)                                                            \
  "{%- if tools %}{{ raise_exception('template: " name                                         \
  " has no form for tools; use a chat_template that has') }}{% endif -%}"                      \
  "{%- for message in messages %}{% if message.tool_calls or message.content is not string %}" \
  "{{ raise_exception('template: " name                                                        \
  " knows messages of plain text alone') }}{% endif %}{% endfor -%}"

// Where the format has no other roles.
#define SKEIN_TURNS_ALTERNATE                                                                     \
  "{%- set system = messages[0].content if messages and messages[0].role == 'system' else '' -%}" \
  "{%- set turns = messages[1:] if messages and messages[0].role == 'system' else messages -%}"   \
  "{%- for message in turns %}"                                                                   \
  "{% if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}"                    \
  "{{ raise_exception('turns must alternate user, assistant, …; this is a turn of ' ~ "           \
  "message.role) }}{% endif %}{% endfor -%}"

#define SKEIN_CHATML_TURNS                                                     \
  "{%- for message in messages %}"                                             \
  "{{ '<|im_start|>' + message.role + '\\n' }}"                                \
  "{% if message.role == 'assistant' %}"                                       \
  "{% generation %}{{ message.content + '<|im_end|>\\n' }}{% endgeneration %}" \
  "{% else %}{{ message.content + '<|im_end|>\\n' }}{% endif %}{% endfor -%}"  \
  "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"

struct BuiltIn {
  const char* name;
  const char* text;
};

constexpr BuiltIn kBuiltIn[] = {
    {"chatml", SKEIN_PLAIN_TEXT_ONLY("chatml") SKEIN_CHATML_TURNS},
    {"llama3",
     SKEIN_PLAIN_TEXT_ONLY(
         "llama3") "{{- bos_token }}"
                   "{%- for message in messages %}"
                   "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}"
                   "{% if message.role == 'assistant' %}"
                   "{% generation %}{{ message.content | trim + '<|eot_id|>' }}{% endgeneration %}"
                   "{% else %}{{ message.content | trim + '<|eot_id|>' }}{% endif %}{% endfor -%}"
                   "{%- if add_generation_prompt %}"
                   "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif -%}"},
    {"qwen",
     SKEIN_PLAIN_TEXT_ONLY("qwen") "{%- if not messages or messages[0].role != 'system' %}"
                                   "{{ '<|im_start|>system\\nYou are Qwen, created by Alibaba "
                                   "Cloud. You are a helpful "
                                   "assistant.<|im_end|>\\n' }}{% endif -%}" SKEIN_CHATML_TURNS},
    {"mistral", SKEIN_PLAIN_TEXT_ONLY("mistral") SKEIN_TURNS_ALTERNATE
     "{{- bos_token }}"
     "{%- for message in turns %}"
     "{% if message.role == 'user' %}"
     "{{ '[INST] ' + (system + '\\n\\n' if loop.first and system else '') + message.content + "
     "'[/INST]' }}"
     "{% else %}{% generation %}{{ ' ' + message.content ~ eos_token }}{% endgeneration %}"
     "{% endif %}{% endfor -%}"},
    {"gemma", SKEIN_PLAIN_TEXT_ONLY("gemma") SKEIN_TURNS_ALTERNATE
     "{{- bos_token }}"
     "{%- for message in turns %}"
     "{% if message.role == 'user' %}"
     "{{ '<start_of_turn>user\\n' + (system + '\\n\\n' if loop.first and system else '') + "
     "message.content | trim + '<end_of_turn>\\n' }}"
     "{% else %}{{ '<start_of_turn>model\\n' }}"
     "{% generation %}{{ message.content | trim + '<end_of_turn>\\n' }}{% endgeneration %}"
     "{% endif %}{% endfor -%}"
     "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif -%}"},
    {"phi3", SKEIN_PLAIN_TEXT_ONLY(
                 "phi3") "{%- for message in messages %}"
                         "{{ '<|' + message.role + '|>\\n' }}"
                         "{% if message.role == 'assistant' %}"
                         "{% generation %}{{ message.content + '<|end|>\\n' }}{% endgeneration %}"
                         "{% else %}{{ message.content + '<|end|>\\n' }}{% endif %}{% endfor -%}"
                         "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif -%}"},
    {"alpaca", SKEIN_PLAIN_TEXT_ONLY("alpaca") SKEIN_TURNS_ALTERNATE
     "{{- bos_token }}"
     "{{- system or 'Below is an instruction that describes a task. Write a response that "
     "appropriately completes the request.' }}{{ '\\n\\n' }}"
     "{%- for message in turns %}"
     "{% if message.role == 'user' %}"
     "{{ '### Instruction:\\n' + message.content + '\\n\\n### Response:\\n' }}"
     "{% else %}{% generation %}{{ message.content ~ eos_token ~ '\\n\\n' }}{% endgeneration %}"
     "{% endif %}{% endfor -%}"},
};

#undef SKEIN_PLAIN_TEXT_ONLY
#undef SKEIN_TURNS_ALTERNATE
#undef SKEIN_CHATML_TURNS

}  // namespace

std::vector<std::string> built_in_templates() {
  std::vector<std::string> names;
  for (const auto& built_in : kBuiltIn) names.emplace_back(built_in.name);
  return names;
}

std::string_view built_in_template(const std::string& name) {
  for (const auto& built_in : kBuiltIn) {
    if (name == built_in.name) return built_in.text;
  }
  throw UserError(fmt::format("template: there is no '{}'{}; known are {}", name,
                              config::did_you_mean(name, built_in_templates()),
                              fmt::join(built_in_templates(), ", ")));
}

}  // namespace skein::text
