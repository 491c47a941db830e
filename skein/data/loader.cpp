// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/data/text_source.h"

namespace skein::data {
namespace {

SampleOrder order_of(const LoaderOptions& options, int size) {
  SKEIN_CHECK(options.per_device_batch > 0 && options.accumulation > 0 && size > 0,
              "the batch plan gives positive sizes");
  return {.global_batch = options.per_device_batch * options.accumulation * size,
          .seed = options.seed,
          .drop_last = options.data.dataloader_drop_last};
}

void require_vocabulary(std::span<const uint16_t> tokens, const LoaderOptions& options) {
  const auto outside = std::find_if(tokens.begin(), tokens.end(),
                                    [&](uint16_t token) { return token >= options.vocab_size; });
  if (outside == tokens.end()) return;
  const std::string& path = options.data.train_file;
  throw UserError(fmt::format(
      "train_file: {}: token {} has id {}, but the model's vocab_size is {}; {}", path,
      outside - tokens.begin(), *outside, options.vocab_size,
      is_token_file(path)
          ? std::string("was the file made with another tokenizer?")
          : fmt::format("text is read as bytes 0-255 with {} after each document, which needs a "
                        "vocab_size of at least {}",
                        kEndOfDocument, kByteVocabulary)));
}

// Weight zero: one token that predicts nothing.
tensor::Batch empty_batch() {
  return {.tokens = at::zeros({1, 1}, at::kLong),
          .targets = at::full({1, 1}, tensor::kIgnore, at::kLong),
          .documents = at::zeros({1}, at::kLong)};
}

}  // namespace

Loader::Loader(const LoaderOptions& options, int rank, int size)
    : options_(options),
      rank_(rank),
      size_(size),
      tokens_(read_tokens(options.data.train_file)),
      blocks_(static_cast<int64_t>(tokens_.tokens().size()), options.data.block_size),
      plan_(blocks_, order_of(options, size)) {
  SKEIN_CHECK(0 <= rank && rank < size, fmt::format("rank {} of {}", rank, size));
  require_vocabulary(tokens_.tokens(), options_);
}

StepBatches Loader::batches(int64_t step) const {
  auto plan = plan_.step_plan(step);
  StepBatches result{
      .num_targets = plan.num_targets, .samples_end = plan.samples_end, .epoch = plan.epoch};
  const auto count = static_cast<int64_t>(plan.samples.size());
  const int64_t rows = options_.per_device_batch;
  for (int64_t micro = 0; micro < options_.accumulation; ++micro) {
    const int64_t begin = std::min((micro * size_ + rank_) * rows, count);
    const int64_t end = std::min(begin + rows, count);
    const auto samples = std::span(plan.samples).subspan(begin, end - begin);
    result.micro_batches.push_back(samples.empty() ? empty_batch()
                                                   : batch(samples, plan.epoch_index));
  }
  result.samples = std::move(plan.samples);
  return result;
}

tensor::Batch Loader::batch(std::span<const int64_t> samples, int64_t epoch_index) const {
  int64_t longest = 0;
  for (const int64_t sample : samples) longest = std::max(longest, blocks_.block(sample).length);

  const auto rows = static_cast<int64_t>(samples.size());
  tensor::Batch batch{.tokens = at::zeros({rows, longest}, at::kLong),
                      .targets = at::full({rows, longest}, tensor::kIgnore, at::kLong),
                      .documents = at::empty({rows}, at::kLong)};
  auto* tokens = batch.tokens.data_ptr<int64_t>();
  auto* targets = batch.targets.data_ptr<int64_t>();
  auto* documents = batch.documents.data_ptr<int64_t>();
  for (const int64_t sample : samples) {
    const auto block = blocks_.block(sample);
    const auto row = tokens_.tokens().subspan(block.begin, block.length);
    std::copy(row.begin(), row.end(), tokens);
    std::copy(row.begin() + 1, row.end(), targets);
    tokens += longest;
    targets += longest;
    *documents++ = epoch_index * num_samples() + sample;
    batch.num_targets += block.num_targets();
  }
  return batch;
}

std::string Loader::data_digest() const {
  return digest(fmt::format("tokens {} block_size {}", digest(std::as_bytes(tokens_.tokens())),
                            options_.data.block_size));
}

}  // namespace skein::data
