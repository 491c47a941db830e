// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The commands. Each is given the arguments after its name and returns the exit code; errors
// propagate as exceptions (guard.h). What a command does and takes: its --help, docs/commands.md.

#include <span>
#include <string>

namespace skein::cli {

using Arguments = std::span<const std::string>;

// In skein, which links no LibTorch.
int run_train_command(Arguments arguments);  // the exit code is the run's
int run_eval_command(Arguments arguments);   // starts ranks, as train does
// Starts ranks. 1 when strategies differ, after its report.
int run_verify_command(Arguments arguments);
// `scaling` starts ranks; every other bench runs in skein-worker.
int run_bench_launcher(Arguments arguments);
int run_plan_command(Arguments arguments);
int run_config_command(Arguments arguments);
int run_data_command(Arguments arguments);
int run_tokenizer_command(Arguments arguments);
int run_template_command(Arguments arguments);
// A damaged checkpoint ends `verify` with an IoError, after its report.
int run_checkpoint_command(Arguments arguments);
int run_merge_command(Arguments arguments);
int run_export_command(Arguments arguments);
int run_gradients_command(Arguments arguments);
int run_doctor_command(Arguments arguments);  // 2 when there is a problem

// In skein-worker.
int run_generate_command(Arguments arguments);
int run_chat_command(Arguments arguments);
int run_bench_command(Arguments arguments);
int run_eval_rank(Arguments arguments);       // one rank of `skein eval`
int run_verify_rank(Arguments arguments);     // one rank of `skein verify-strategy`
int run_gradients_rank(Arguments arguments);  // one rank of `skein gradients collect`
int run_scaling_rank(Arguments arguments);    // one rank of `skein bench scaling`

// For `skein doctor`: prints one line of JSON: LibTorch's version, CUDA's and NCCL's, the GPUs and
// which pairs of them reach each other's memory. What is not there is null. With --no-gpus the
// driver, which may hang, is left alone.
int run_doctor_facts(Arguments arguments);
// One rank of a trial: an all-reduce of 64 MiB, five times, its sum checked. Rank 0 writes a line
// of JSON to the file that `arguments` names.
int run_doctor_rank(Arguments arguments);

// For the parity tests: debug-forward MODEL TOKENS OUT [--dtype D], one forward and backward pass.
// TOKENS is a safetensors file with `tokens` (B, T) int64. OUT gets `logits` (B, T, V), `loss_sum`
// (1) float64 over the next tokens, and `grad.NAME` of loss_sum / number of targets for every
// parameter. Dropout is off. The default is float32.
int run_debug_forward(Arguments arguments);
// The same: debug-nf4 MODEL OUT [--single], the weights of its linear layers as a run with
// quantization_bit 4 reads them. OUT gets NAME, their values in float32, and NAME.bytes, as
// core/nf4_layout.h says; --single without double quantisation.
int run_debug_nf4(Arguments arguments);

}  // namespace skein::cli
