// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/chat_flags.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/text/parts/unicode.h"

namespace skein::cli {

const char* const kChatUsage =
    "skein chat MODEL [--system TEXT] [flags]\n"
    "\n"
    "Talks with the model of a folder, through its chat template. In a terminal: Ctrl-C stops an\n"
    "answer, Ctrl-D, /exit or /quit leaves, /reset forgets the conversation. Without one each\n"
    "line of stdin is a turn, and stdout gets the answers and nothing else.\n"
    "\n"
    "  --system TEXT             what the model is told first\n"
    "  --template NAME           a built-in template instead of the folder's (`skein template "
    "list`)\n"
    "  --chat-template FILE      a file with one, or the name of one of the folder's\n"
    "  --variables JSON          an object whose entries the template sees, as\n"
    "                            '{\"enable_thinking\": false}'; in training: docs/templates.md\n"
    "  --max-new-tokens N        of one answer (1024)\n"
    "  --temperature X           0: always the likeliest token (1)\n"
    "  --top-k K  --top-p P  --min-p P  --repetition-penalty X\n"
    "  --seed S                  the same seed and turns give the same answers (0)\n"
    "  --stop TEXT               an answer ends before it; may be given several times\n"
    "  --device auto|cpu|cuda|cuda:N\n"
    "  --dtype auto|float32|bfloat16|float16|float64\n"
    "                            auto: bfloat16 where the files have 16 bits and the GPU computes\n"
    "                            in it, else float32\n"
    "  --json                    one JSON object per answer\n"
    "  --adapter DIR             a LoRA adapter as PEFT writes it, computed beside MODEL\n"
    "  --base DIR                where MODEL is an adapter: its base, if not where it says\n"
    "\n"
    "Defaults of the sampling flags come from generation_config.json where the folder has one.\n"
    "More: docs/chat.md\n";

ChatFlags parse_chat_flags(std::span<const std::string> arguments) {
  ChatFlags flags;
  FlagSet set("skein chat");
  set.add("system", flags.system);
  set.add("template", flags.source.name);
  set.add("chat-template", flags.source.file);
  set.add("variables", flags.variables);
  flags.declare(set);
  set.add_foreign("prompt", "a turn is typed, or a line of stdin: echo TEXT | skein chat MODEL");
  const auto words = set.read(arguments);
  if (words.size() != 1) {
    throw UserError(words.empty()
                        ? "skein chat needs a model's folder: skein chat MODEL"
                        : fmt::format("skein chat takes one model, not '{}' and '{}'; what you say "
                                      "is typed, or a line of stdin",
                                      words[0], words[1]));
  }
  flags.source.folder = words[0];
  flags.check();
  text::require_utf8(flags.system, "--system");
  return flags;
}

}  // namespace skein::cli
