// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does one entry of a list of messages say? {role, content} or ShareGPT's {from, value}.

#include <cstddef>
#include <string_view>

#include "skein/data/rows/row_columns.h"
#include "skein/text/conversation.h"

namespace skein::data {

// ShareGPT's names of roles become those of chat templates: system, user, assistant, tool. A
// `function_call` is an assistant's message with tool_calls. Parts of type text are joined.
// `number` counts from 1, for messages. Throws IoError.
text::Message parse_message(const OrderedJson& entry, size_t number);

// Tools as text of JSON, which some sets hold. Throws IoError.
OrderedJson parse_tools(std::string_view text);

// "a string", "a list": for messages.
std::string_view kind_of(const OrderedJson& value);

}  // namespace skein::data
