// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Several answers to each of some prompts, as a policy has sampled them: one micro-batch that
// trains on the answers.

#include <cstdint>
#include <span>
#include <vector>

#include "skein/tensor/host_batch.h"

namespace skein::data {

struct Group {
  std::vector<int64_t> prompt;                // tokens, one at least
  std::vector<std::vector<int64_t>> answers;  // tokens of each
  std::vector<int64_t> documents;             // of each answer: tells it apart, keys dropout
  // Of each answer, of each of its tokens: 1 for one that others have put in, which is no target.
  // Empty: none is.
  std::vector<std::vector<uint8_t>> foreign{};
};

// A run of all answers, each behind its prompt; every token of an answer is a
// target, but for foreign ones. Its `answers`
// are those of all groups in turn, judged alone (nobody says how), their `samples` the documents'.
// `shares`: prompts are computed once (run_writer.h), which the model must allow
// (plan::sharing_refusal). Without answers, one token that predicts nothing.
tensor::HostBatch make_groups(std::span<const Group> groups, bool shares);

}  // namespace skein::data
