// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The commands. Each is given the words after its name and returns the exit code; errors propagate
// as exceptions (guard.h). What a command does and takes: its --help, docs/commands.md.

#include <span>
#include <string>

namespace skein::cli {

using CommandWords = std::span<const std::string>;

// In skein, which links no LibTorch.
int run_train_command(CommandWords words);  // the exit code is the run's
int run_eval_command(CommandWords words);   // starts ranks, as train does
int run_plan_command(CommandWords words);
int run_config_command(CommandWords words);
int run_data_command(CommandWords words);
int run_tokenizer_command(CommandWords words);
// A damaged checkpoint ends `verify` with an IoError, after its report.
int run_checkpoint_command(CommandWords words);
int run_doctor_command(CommandWords words);  // 2 when there is a problem

// In skein-worker.
int run_generate_command(CommandWords words);
int run_bench_command(CommandWords words);
int run_eval_rank(CommandWords words);  // one rank of `skein eval`

// For `skein doctor`: prints one line of JSON: LibTorch's version, CUDA's and NCCL's, the GPUs and
// which pairs of them reach each other's memory. What is not there is null. With --no-gpus the
// driver, which may hang, is left alone.
int run_doctor_facts(CommandWords words);
// One rank of a trial: an all-reduce of 64 MiB, five times, its sum checked. Rank 0 writes a line
// of JSON to the file that `words` names.
int run_doctor_rank(CommandWords words);

// For the parity tests: debug-forward MODEL TOKENS OUT [DTYPE], one forward and backward pass.
// TOKENS is a safetensors file with `tokens` (B, T) int64. OUT gets `logits` (B, T, V), `loss_sum`
// (1) float64 over the next tokens, and `grad.NAME` of loss_sum / number of targets for every
// parameter. Dropout is off. DTYPE is float32 (the default), float64 or bfloat16.
int run_debug_forward(CommandWords words);

}  // namespace skein::cli
