// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What was `skein generate` told?

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/cli/flag_set.h"
#include "skein/core/dtype.h"
#include "skein/rollout/sampling/generation_config.h"
#include "skein/rollout/sampling/sampling_options.h"

namespace skein::cli {

// How text is made: what `skein generate` and `skein chat` share.
struct SamplingFlags {
  std::vector<std::string> stops;
  std::optional<int64_t> max_new_tokens;  // at least 1
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  int64_t seed = 0;
  std::optional<DType> dtype;  // absent: auto
  std::string device = "auto";
  bool json = false;
  std::string adapter, base;  // folders; may be empty

  void declare(FlagSet& set);
  void check() const;
};

struct GenerateFlags : SamplingFlags {
  std::string model;                 // folder
  std::vector<std::string> prompts;  // those of --prompt-file too, none empty
  int64_t num_return = 1;
  int64_t batch_size = 0;  // texts at once; 0: as many as fit
  bool stream = true;
};

extern const char* const kGenerateUsage;

// Throws UserError, with suggestions for unknown flags.
GenerateFlags parse_generate_flags(std::span<const std::string> arguments);

// Flags first, then what the model's folder says, then plain sampling. A flag that only sampling
// has turns it on where the folder says do_sample: false.
rollout::SamplingOptions sampling_of(const SamplingFlags& flags,
                                     const rollout::GenerationConfig& folder);

}  // namespace skein::cli
