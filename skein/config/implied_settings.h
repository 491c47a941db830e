// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Settings that follow from others or from the environment, once the layers lie on each other.

#include <map>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/config/syntax/node.h"

namespace skein::config {

// Settings by canonical key. A setting keeps the spelling it was given in.
using Layer = std::map<std::string, Setting>;

// The bare batch size becomes the global one when it stands alone, and the per-device one when
// accumulation is given beside it: in the same place or in one that it overrides.
void read_bare_batch_size(Layer& layer, std::vector<std::string>& notes);

// `per_device_train_batch_size: auto` is auto_find_batch_size. After the DeepSpeed file, whose
// number an explicit `auto` leaves in place.
void read_auto_batch_size(Layer& layer);

// `gradient_checkpointing: offload` is offload_activations too. Before the DeepSpeed file.
void read_offloaded_checkpointing(Layer& layer);

// offload_activations is of what gradient_checkpointing keeps, and switches it on. After the
// DeepSpeed file.
void imply_checkpointing(Layer& layer, std::vector<std::string>& notes);

// `do_eval: true` alone asks for an evaluation after every epoch; false switches evaluation off.
void read_do_eval(Layer& layer, std::vector<std::string>& notes);

// Without ddp_timeout: DEEPSPEED_TIMEOUT (minutes), then NCCL_TIMEOUT (seconds).
void add_environment_timeout(Layer& layer);

// One name serves both experiment_name and run_name; `resume_from_checkpoint: true` is `auto`,
// `metric_for_best_model: eval_loss` is `loss`.
void settle_words(RunConfig& config);

// Why keys that differ from their default do nothing in this run: `eval_steps` without evaluation,
// `lr_end` of another schedule, `packing` of text.
std::map<std::string, std::string> idle_keys(const RunConfig& config);

}  // namespace skein::config
