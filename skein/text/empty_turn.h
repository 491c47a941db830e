// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Is anything left of what the assistant says?
//
// A row may have an empty answer, and a template may leave out content or tool calls that it has no
// form for: a model trained on that learns to end its turn at once.

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "skein/text/conversation.h"

namespace skein::text {

// Whether the turn says nothing, or what is printed of it: all that `empty` has, which is what the
// template prints of empty turns, without blanks around it; or a call without the function's name.
// `printed` may be longer than the turn.
bool is_empty_turn(const Message& turn, std::string_view printed,
                   const std::set<std::string, std::less<>>& empty);

}  // namespace skein::text
