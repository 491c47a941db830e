// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Continues prompts, many at a time, with the weights that a model has now.
//
// Keys and values lie in pages of a cache. Texts join and leave at every pass; those that continue
// the same prompt compute it once. What a text gets depends on its prompt and its keys, not on its
// neighbours (but for the rounding of matrix products, which may differ with the number of rows).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "skein/model/model.h"
#include "skein/rollout/sampling/sampling_options.h"
#include "skein/tensor/units.h"

namespace skein::rollout {

struct Request {
  // At least one token; equal ones behind each other are computed once.
  std::vector<int64_t> prompt{};
  uint64_t prompt_id = 0;      // these two key its random numbers
  uint64_t sample = 0;         // of that prompt
  int64_t max_new_tokens = 0;  // fewer than those of the options; 0: as many
};

struct GenerateOptions {
  SamplingOptions sampling{};
  int64_t max_new_tokens = 128;
  std::vector<int64_t> stop_tokens{};
  int64_t max_rows = 0;  // at once; 0: as many as the cache holds, up to a bound
  // Of keys and values; 0: what is needed, on a GPU at most what is left of it.
  int64_t cache_bytes = 0;
  int64_t pass_tokens = 0;    // of prompts in one pass at most; 0: the device's
  bool log_probs = false;     // of what is drawn
  bool may_record = true;     // false: who owns the weights takes what a recording must not hold
  bool weights_move = false;  // after this call they will lie elsewhere: nothing that knows is kept
  // Called after every token, the stop token too, with the request's number. False ends the row.
  std::function<bool(size_t request, int64_t token)> on_token{};
  // Called now and then with what has been made so far.
  std::function<void(int64_t tokens, int64_t continuations)> on_progress{};
  // True: the results do not matter any more, and may be cut anywhere.
  std::function<bool()> is_abandoned{};
  // Where passes are collective: asked before each one whether any rank has something to do. One
  // that has nothing then runs an empty pass.
  std::function<bool(bool has_work)> goes_on{};
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

// Keeps what can be used again: on a GPU, recorded passes.
class Generator {
 public:
  // All must outlive it.
  Generator(const model::Model& model, tensor::Units& units, at::Device device);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // One result per request, in their order. The cache's memory is taken for the call. Throws
  // UserError for an empty prompt, one that leaves no room in the model's positions, tokens outside
  // its vocabulary, logits that are not finite, or a cache in which one text finds no room.
  std::vector<Continuation> generate(std::span<const Request> requests,
                                     const GenerateOptions& options);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

// Once.
std::vector<Continuation> generate(const model::Model& model, tensor::Units& units,
                                   at::Device device, std::span<const Request> requests,
                                   const GenerateOptions& options);

}  // namespace skein::rollout
