// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What was `skein chat` told?

#include <span>
#include <string>

#include "skein/cli/generate_flags.h"
#include "skein/text/chat_template.h"

namespace skein::cli {

struct ChatFlags : SamplingFlags {
  text::ChatTemplateOptions source;  // its folder is the model's
  std::string system;
  std::string variables;  // of the template, JSON; empty: none
};

extern const char* const kChatUsage;

// Throws UserError, with suggestions for unknown flags.
ChatFlags parse_chat_flags(std::span<const std::string> arguments);

}  // namespace skein::cli
