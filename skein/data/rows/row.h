// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does one row of training data say? Recognised by its columns, without configuration:
//
//   messages                     a list of {role, content}; `system`, `tools`
//   conversations (ShareGPT)     a list of {from, value}; `system`, `tools`
//   prompt, completion           both text, or both lists of messages; with lists `system`, `tools`
//   instruction, output (Alpaca) `input`, `system`, `history`: a list of [question, answer]
//   text                         a document
//
// The first of these that a row has counts; a column that is null is absent, others are ignored.
// Plain text has no place for a `system`: such a row is refused.

#include <cstddef>
#include <string>
#include <string_view>

#include "skein/core/error.h"
#include "skein/text/conversation.h"

namespace skein::data {

class RowColumns;

// What rows are there for: to be trained on, to tell the better of two answers from the worse
// (preference_row.h), to tell good answers from bad ones, or to be answered (prompt_row.h).
enum class RowKind { kRows, kPairs, kFeedback, kPrompts };

struct Row {
  enum class Kind { kText, kPromptCompletion, kConversation };

  Kind kind = Kind::kText;
  std::string text;                 // kText: the document; kPromptCompletion: the prompt
  std::string completion;           // kPromptCompletion
  text::Conversation conversation;  // kConversation
  // kConversation: messages before the completion, where the row has one; 0: it has none.
  size_t prompt_messages = 0;
};

// The row has none of these columns: most likely no row of its file has.
struct UnknownColumns : IoError {
  using IoError::IoError;
};

// One JSON object. Throws IoError with the reason and what was expected, without the place, which
// only the caller knows. Safe on hostile bytes (see row_columns.h).
Row parse_row(std::string_view json);
// The same of a row whose columns are known.
Row row_of(const RowColumns& row);

// A list of messages, or an object that holds one as rows do (`messages` or `conversations`,
// `system`, `tools`), in which nobody need have answered. Throws IoError as parse_row() does.
text::Conversation parse_conversation(std::string_view json);

}  // namespace skein::data
