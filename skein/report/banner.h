// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a run says before its first step: who trains what, with which batch, on which devices.
//
// People grep for two of the lines: `DDP training: 2 GPUs` and `effective batch size: 256`, in
// Chinese `DDP训练: 2 GPUs` and `有效批次大小: 256`. They never change.

#include <cstdint>
#include <string>
#include <vector>

namespace skein::report {

enum class Language { kEnglish, kChinese };

// SKEIN_LANG goes first (zh or en), then the locale: LC_ALL, LC_MESSAGES, LANG.
Language user_language();

struct RankRow {
  int rank = 0;
  int local_rank = 0;
  std::string host;
  std::string device;  // "cuda:0 NVIDIA H200", "cpu, 1 thread"
  int64_t batch = 0;   // per micro-batch
};

struct Banner {
  std::string strategy = "DDP";  // as people write it: DDP, ZeRO-1, ZeRO-2, ZeRO-3
  bool on_gpus = false;
  int64_t per_device_batch = 0;
  int64_t accumulation = 0;
  int64_t global_batch = 0;
  int64_t tokens_per_step = 0;
  int64_t num_samples = 0;
  double num_epochs = 0;
  int64_t total_steps = 0;
  int64_t num_parameters = 0;
  int64_t num_trainable = 0;
  std::string dtype;           // of the weights in forward
  std::string peak;            // describe_peak()
  std::vector<RankRow> ranks;  // one per rank, in order
};

// Several lines without a newline at the end.
std::string banner_text(const Banner& banner, Language language);

}  // namespace skein::report
