// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which answers were judged in a row, and how? Recognised by its columns, without configuration.
//
// Pairs have `chosen` and `rejected`, each a text, a message or a list of messages, behind
//
//   prompt                            text, a message or a list of messages
//   messages, conversations           a list of messages; `system`, `tools`
//   instruction (Alpaca)              `input`, `system`, `history`
//   nothing                           both begin alike: what they share is the prompt
//
// and `margin`, a number, where someone said how much better the chosen one is. Where all is plain
// text, no template is put around it; else a text is the user's prompt or the assistant's answer.
//
// Answers that were judged alone have `label` (or `kto_tag`: true, false) beside what row.h reads;
// of a conversation the last message is judged. Or they have a `chosen` and a `rejected` of which
// one is empty.
//
// Both answers of a pair are rows with a completion: what is trained on is found as in other rows.

#include <optional>
#include <string_view>

#include "skein/data/rows/row.h"

namespace skein::data {

struct PreferenceRow {
  Row chosen, rejected;  // with the same prompt
  std::optional<double> margin;
};

struct FeedbackRow {
  Row row;
  bool desirable = false;
};

// As parse_row(). A row of another kind is refused with the stage that trains on it.
PreferenceRow parse_preference(std::string_view json);
FeedbackRow parse_feedback(std::string_view json);

}  // namespace skein::data
