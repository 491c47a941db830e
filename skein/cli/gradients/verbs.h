// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The verbs of `skein gradients`, one file each. Each is given the words after its own.
//
// Signals that ask for a stop are held when they are called (core/stop_signals.h).

#include <string>
#include <string_view>
#include <vector>

#include "skein/cli/commands.h"
#include "skein/cli/flag_set.h"
#include "skein/core/file.h"

namespace skein::cli {

int collect_gradients(Arguments arguments);
int merge_gradients(Arguments arguments);
int score_gradients(Arguments arguments);
int select_by_scores(Arguments arguments);
int selftest_gradients(Arguments arguments);

// LESS's flags that this verb does not have under that name, refused with what to type.
void add_less_flags(FlagSet& flags, std::string_view verb);

// What people write behind a flag that takes a list: words, with commas or without. A word that
// names a file or a folder is one, whatever it holds.
std::vector<std::string> without_commas(const std::vector<std::string>& words);

// Throws UserError for words that stand behind no flag that would take them.
void refuse_loose_words(std::string_view verb, const std::vector<std::string>& words,
                        std::string_view lists);

// A line for those of the files that are there: they are about to be written over.
void tell_overwritten(const std::vector<fs::path>& files);

}  // namespace skein::cli
