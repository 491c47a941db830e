// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where in a text does its answer stand, and are two answers the same?
//
// All in one pass over the text, however it is built.

#include <optional>
#include <string>
#include <string_view>

#include "skein/rewards/rational.h"

namespace skein::rewards {

enum class AnswerForm {
  kHashes,  // behind the last ####, to the end of its line
  kBoxed,   // in the last \boxed{…} that is closed, braces inside counted
  kTag,     // in the last <answer>…</answer>
};

// Without the white space around it. Nothing when the text has no such form.
std::optional<std::string_view> find_answer(std::string_view text, AnswerForm form);

// In whichever form there is: a tag, else a box, else hashes; a box in a tag counts.
std::optional<std::string_view> find_answer(std::string_view text);

// What follows the last </think>, or the whole text.
std::string_view after_thinking(std::string_view text);

// What stands between white space.
std::string_view trimmed(std::string_view text);

// As two writers would have written the same answer: white space made single, no $ and no period
// around it, LaTeX without what only changes its looks. Longer than 4 KiB it stays as it is.
std::string normal_form(std::string_view answer);

// 1,000 = 1000 = 1e3, 0.5 = 1/2 = \frac{1}{2}, $12.00 = 12; a percent sign is a unit like the
// dollar: 50% = 50. Nothing when the whole is no such number.
std::optional<Rational> number_of(std::string_view answer);

enum class Compare { kText, kNumber, kAny };

// kAny: as texts or as numbers.
bool same_answer(std::string_view a, std::string_view b, Compare compare);

}  // namespace skein::rewards
