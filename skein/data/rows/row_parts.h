// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do the columns that rows of all kinds share say?
//
// Each call throws IoError with the reason and what was expected, without the place.

#include <cstddef>
#include <string>
#include <string_view>

#include "skein/data/rows/row.h"
#include "skein/data/rows/row_columns.h"
#include "skein/text/conversation.h"

namespace skein::data {

const std::string& text_of(const OrderedJson& value, std::string_view column);
// Empty when the column is absent.
std::string text_of(const RowColumns& row, std::string_view column);

// Messages are counted from the first of `out` on.
void append_messages(const OrderedJson& list, std::string_view column, text::Conversation& out);
void add_tools(const RowColumns& row, text::Conversation& out);

// The list of messages in a column, and `tools`. Requires the column.
text::Conversation conversation_in(const RowColumns& row, std::string_view column);
// What the user said, and all before it: `instruction`, `input`, `history`.
text::Conversation alpaca_prompt(const RowColumns& row);

// Checks the order of the messages.
Row conversation_row(text::Conversation conversation, size_t prompt_messages = 0);

// A conversation's own system message wins over the column.
text::Conversation with_system(text::Conversation conversation, std::string system);
// Where a completion follows, the system's message is part of the prompt.
Row with_system(Row row, std::string system);
// Throws when there is a `system` beside columns that no template is put around.
void refuse_system(const RowColumns& row, std::string_view columns);

// Whether the column holds anything; an empty list does not, an empty text does.
bool has_content(const RowColumns& row, std::string_view column);
// Throws when the row holds what is no text.
void refuse_media(const RowColumns& row);

}  // namespace skein::data
