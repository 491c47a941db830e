// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A chat template. One that is accepted renders a conversation, or refuses it, within its budget.
#include "skein/text/chat_template.h"

#include "skein/core/error.h"
#include "skein/text/parts/unicode.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {

void chat_template(std::string_view bytes) try {
  static const text::Conversation conversation{
      .messages =
          {{.role = "system", .content = "Be kind."},
           {.role = "user", .content = " h\xc3\xa9 <b>\n"},
           {.role = "assistant",
            .content = "x",
            .extra_json =
                R"({"tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]})"},
           {.role = "tool", .content = "{\"a\": 1}"}},
      .tools_json = R"([{"type": "function", "function": {"name": "f"}}])"};
  const auto chat =
      text::ChatTemplate::parse(bytes, "t", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  // Few steps, or one input could take a second.
  const auto rendered =
      chat.render(conversation, {.add_generation_prompt = true, .max_steps = 20'000});
  require(rendered.steps <= 20'000, "the budget holds");
  require(text::valid_utf8_prefix(rendered.text) == rendered.text.size(), "the text is UTF-8");
  for (const auto& span : rendered.generated) {
    require(span.begin <= span.end && span.end <= rendered.text.size(), "spans lie in the text");
  }
} catch (const UserError&) {
}

}  // namespace skein::fuzz
