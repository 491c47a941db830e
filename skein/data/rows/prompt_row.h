// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is the model asked by a row? The first of these that the row has:
//
//   messages, conversations   a list as row.h has it; a last message of the assistant is left out
//   prompt                    text; or a message or a list of them, as above
//   instruction (Alpaca)      `input`, `system`, `history`; `output` is not read
//   question                  what the user says
//
// `system` and `tools` as in row.h. What the answer should be may stand in any column: rewards read
// it, not this.

#include <string_view>

#include "skein/data/rows/row.h"

namespace skein::data {

// kText: the prompt as it is; kConversation: messages that an answer of the assistant's follows.
// One JSON object. Throws IoError as parse_row() does, UnknownColumns where there is no prompt.
Row parse_prompt(std::string_view json);

}  // namespace skein::data
