// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Continues prompts, many at a time.
//
// Rows of a batch may have prompts of different lengths; each ends by itself and then costs nothing
// more. What a row gets depends on its prompt and its sample id, not on its neighbours (but for the
// rounding of matrix products, which may differ with the number of rows).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "skein/model/model.h"
#include "skein/rollout/sampling/sampler.h"
#include "skein/tensor/units.h"

namespace skein::rollout {

struct Request {
  std::vector<int64_t> prompt;  // at least one token
  uint64_t prompt_id = 0;       // these two key its random numbers
  uint64_t sample = 0;          // of that prompt
};

struct GenerateOptions {
  SamplingOptions sampling{};
  int64_t max_new_tokens = 128;
  std::vector<int64_t> stop_tokens{};
  int64_t max_rows = 0;  // at once; 0: as many as the cache holds
  int64_t cache_bytes =
      0;  // of keys and values; 0: what is needed, and on a GPU at most what is left
  bool log_probs = false;  // of what is drawn
  // Called after every token, the stop token too, with the request's number. False ends the row.
  std::function<bool(size_t request, int64_t token)> on_token{};
  // Called now and then with what has been made so far.
  std::function<void(int64_t tokens, int64_t continuations)> on_progress{};
  // True: the results do not matter any more, and may be cut anywhere.
  std::function<bool()> is_abandoned{};
};

enum class Finish {
  kStopToken,  // the last token is one of stop_tokens
  kCallback,   // on_token said so
  kLength,     // max_new_tokens
  kPositions,  // the model knows no further position
};

// As our JSON says it: "stop", "length" or "positions".
const char* finish_reason(Finish finish);

struct Continuation {
  std::vector<int64_t> tokens;      // new ones
  std::vector<double> log_probs{};  // of each, at the temperature (of 0: at 1), if asked for
  Finish finish = Finish::kLength;
};

// One result per request, in their order. Throws UserError for an empty prompt, one that leaves no
// room in the model's positions, or tokens outside its vocabulary.
std::vector<Continuation> generate(const model::Model& model, tensor::Units& units,
                                   at::Device device, std::span<const Request> requests,
                                   const GenerateOptions& options);

}  // namespace skein::rollout
