// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What stages ppo, grpo and rloo make of the words of a configuration.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "skein/config/implied_settings.h"
#include "skein/config/run_config.h"
#include "skein/config/syntax/node.h"

namespace skein::config {

// Do the settings, of which later lists win, ask for such a stage?
bool ask_for_online(const std::vector<std::vector<Setting>>& sources);

// Keys of TRL that mean something of their own in these stages (`beta`, `loss_type`), also in
// axolotl's section: the spelling that says what they mean. Others as they are.
std::string online_spelling(std::string_view key);

// A program that is started must be named by whoever starts the run: throws UserError where a file
// that the run's own extends does it. `files`: the run's own is the last.
void refuse_inherited_program(const std::vector<std::vector<Setting>>& files);

// cutoff_len alone is max_prompt_length, as in LLaMA-Factory; beside it has no effect.
void read_prompt_length(Layer& layer, std::vector<std::string>& notes);

// block_size becomes the length of a prompt with its answer, which is what the model must hold, and
// metric_for_best_model the reward.
void settle_online(RunConfig& config, std::vector<std::string>& notes);

// For idle_keys(): of these stages, and what of theirs other stages do not have.
void add_online_keys(const RunConfig& config, std::map<std::string, std::string>& idle);

}  // namespace skein::config
