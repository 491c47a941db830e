// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Who may speak after whom?
//
// The system (or developer) first, if at all; then the user; then the assistant and the user in
// turns, where an assistant's message may be followed by results of tools, and these by the
// assistant. At least one message is the assistant's.

#include <span>
#include <string_view>

#include "skein/text/conversation.h"

namespace skein::data {

// Or the developer's, which means the same.
bool is_system(std::string_view role);

// Throws IoError that names the first message out of order, and what was expected there. Requires
// the roles of parse_message(), and at least one message.
void check_order(std::span<const text::Message> messages);
// The same of messages that an answer is to follow: the last is the user's or a tool's.
void check_prompt_order(std::span<const text::Message> messages);

}  // namespace skein::data
