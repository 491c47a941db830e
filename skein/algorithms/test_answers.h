// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Six answers of odd lengths for tests: three pairs, or six that are judged alone.

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>

#include <memory>
#include <vector>

#include "skein/model/tiny_models.h"
#include "skein/tensor/batch.h"

namespace skein::algorithms {

// Log-probabilities of a reference.
inline const std::vector<double> kReferences{-3.5, -20.0, -9.0, -2.5, -4.0, -8.0};

struct TestAnswers {
  std::vector<int64_t> lengths{3, 7, 5, 2, 2, 4};
  std::shared_ptr<tensor::HostAnswers> answers = std::make_shared<tensor::HostAnswers>();
  tensor::HostBatch run{.rows = 1}, rows{.rows = 6, .length = 7};

  TestAnswers() {
    rows.tokens.assign(42, 0);
    rows.targets.assign(42, tensor::kIgnore);
    for (size_t d = 0; d < lengths.size(); ++d) {
      answers->documents.push_back(static_cast<int64_t>(d));
      for (int64_t t = 0; t < lengths[d]; ++t) {
        const auto at = static_cast<size_t>(t);
        const auto token = static_cast<int64_t>((d * 5 + at * 3) % 17);
        // The last token has none, and of longer ones the first is a prompt's.
        const bool has_target = t + 1 < lengths[d] && (t > 0 || lengths[d] < 5);
        const int64_t target = has_target ? (token + 1) % 17 : tensor::kIgnore;
        run.tokens.push_back(token);
        run.targets.push_back(target);
        run.num_targets += has_target;
        rows.tokens[d * 7 + at] = token;
        rows.targets[d * 7 + at] = target;
      }
      run.document_ends.push_back(static_cast<int32_t>(run.tokens.size()));
      run.documents.push_back(static_cast<int64_t>(d));
      rows.documents.push_back(static_cast<int64_t>(d));
      rows.row_lengths.push_back(lengths[d]);
    }
    run.length = std::ssize(run.tokens);
    rows.num_targets = run.num_targets;
    run.answers = rows.answers = answers;
  }

  // One answer alone.
  tensor::Batch alone(size_t document) const {
    tensor::HostBatch one{.rows = 1, .length = lengths[document], .documents = {0}};
    const auto begin = static_cast<std::ptrdiff_t>(document * 7);
    one.tokens.assign(rows.tokens.begin() + begin, rows.tokens.begin() + begin + one.length);
    one.targets.assign(rows.targets.begin() + begin, rows.targets.begin() + begin + one.length);
    return tensor::to_device(one, at::kCPU);
  }

  int64_t targets_of(size_t document) const {
    return lengths[document] - 1 - (lengths[document] < 5 ? 0 : 1);
  }
};

// A rank for which no sample is left.
inline tensor::Batch without_answers(bool alone = false) {
  auto answers = std::make_shared<tensor::HostAnswers>();
  answers->alone = alone;
  const tensor::HostBatch host{.rows = 1,
                               .length = 1,
                               .tokens = {0},
                               .targets = {tensor::kIgnore},
                               .documents = {0},
                               .document_ends = {1},
                               .answers = answers};
  return tensor::to_device(host, at::kCPU);
}

// log p of each target of an answer, (T), and the mean of each token's logits.
struct AloneNumbers {
  at::Tensor log_probs, mean_logits;
};
inline AloneNumbers numbers_of(const model::Model& model, const tensor::Batch& alone) {
  tensor::PlainUnits units;
  const auto hidden = model.forward(alone, {.training = false}, units);
  const auto logits = model.head_logits(hidden, units)[0];
  const auto targets = alone.targets[0];
  const auto valid = targets.ne(tensor::kIgnore);
  const auto index = targets.clamp_min(0).unsqueeze(1);
  return {at::log_softmax(logits, 1).gather(1, index).squeeze(1).masked_select(valid),
          logits.mean(1).masked_select(valid)};
}

}  // namespace skein::algorithms
