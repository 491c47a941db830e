// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/loader.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/data/eval_plan.h"
#include "skein/data/prefetcher.h"
#include "skein/data/prepare.h"
#include "skein/data/sample_plan.h"

namespace skein::data {
namespace {

config::DataConfig reading(config::DataConfig data) {
  data.overwrite_cache = false;  // see prepare_run()
  return data;
}

SampleOrder order_of(const LoaderOptions& options, int size) {
  SKEIN_CHECK(options.per_device_batch > 0 && options.accumulation > 0 && size > 0,
              "the batch plan gives positive sizes");
  return {.global_batch = options.per_device_batch * options.accumulation * size,
          .seed = options.seed,
          .drop_last = options.data.dataloader_drop_last};
}

void require_vocabulary(const PreparedData& data, const text::TextCodec& codec,
                        int64_t vocab_size) {
  if (data.kind == SourceKind::kText && codec.vocab_size() > vocab_size) {
    throw UserError(
        fmt::format("the model's vocab_size is {}, but the text is read with {} ids ({}); give a "
                    "tokenizer_name_or_path that fits the model, or a model with vocab_size {}",
                    vocab_size, codec.vocab_size(), codec.identity(), codec.vocab_size()));
  }
  if (static_cast<int64_t>(data.largest_token) < vocab_size) return;
  const int64_t first = data.tokens.first_outside(vocab_size);
  throw UserError(
      fmt::format("{}{}: token {} has id {}, but the model's vocab_size is {}; was the file made "
                  "with another tokenizer?",
                  data.files[0].string(), data.files.size() > 1 ? " and the files after it" : "",
                  first, data.tokens.read(first, 1)[0], vocab_size));
}

PreparedData open(const LoaderOptions& options, const text::TextCodec& codec, Split split) {
  auto data = prepare(options.data, codec, split);
  require_vocabulary(data, codec, options.vocab_size);
  return data;
}

Blocks blocks_of(const PreparedData& data, const LoaderOptions& options) {
  return {data.tokens.size(), options.data.block_size};
}

// Filled by hand and not by LibTorch, which would start threads of its own in the prefetch thread.
at::Tensor filled(at::IntArrayRef shape, int64_t value) {
  auto tensor = at::empty(shape, at::kLong);
  std::fill_n(tensor.data_ptr<int64_t>(), tensor.numel(), value);
  return tensor;
}

// The rows of `samples`; without any, one token that predicts nothing: weight zero.
tensor::Batch make_batch(const TokenArray& tokens, const Blocks& blocks,
                         std::span<const int64_t> samples, int64_t first_document) {
  int64_t longest = 1;
  for (const int64_t sample : samples) longest = std::max(longest, blocks.block(sample).length);

  const auto rows = std::max<int64_t>(1, static_cast<int64_t>(samples.size()));
  tensor::Batch batch{.tokens = filled({rows, longest}, 0),
                      .targets = filled({rows, longest}, tensor::kIgnore),
                      .documents = filled({rows}, 0)};
  auto* row = batch.tokens.data_ptr<int64_t>();
  auto* targets = batch.targets.data_ptr<int64_t>();
  auto* documents = batch.documents.data_ptr<int64_t>();
  for (const int64_t sample : samples) {
    const auto block = blocks.block(sample);
    tokens.copy(block.begin, {row, static_cast<size_t>(block.length)});
    std::copy(row + 1, row + block.length, targets);
    row += longest;
    targets += longest;
    *documents++ = first_document + sample;
    batch.num_targets += block.num_targets();
  }
  return batch;
}

}  // namespace

// All that the batches follow from.
struct Loader::Parts {
  LoaderOptions options;
  int64_t rank;
  int64_t size;
  PreparedData train;
  std::optional<PreparedData> eval;  // absent: held-out blocks of `train`
  double held_out;
  Blocks blocks;
  SamplePlan plan;
  std::optional<EvalPlan> eval_plan;  // absent: no evaluation

  static std::unique_ptr<const Parts> open(LoaderOptions options, int rank, int size) {
    SKEIN_CHECK(0 <= rank && rank < size, fmt::format("rank {} of {}", rank, size));
    options.data = reading(options.data);
    const auto codec = text::open_codec(options.model);
    const bool evaluates = options.eval_batch > 0;
    auto train = data::open(options, *codec, Split::kTrain);
    std::optional<PreparedData> eval;
    if (evaluates && has_eval_sources(options.data)) {
      eval = data::open(options, *codec, Split::kEval);
    }
    const auto blocks = blocks_of(train, options);
    const double held_out = held_out_percentage(options.data, evaluates);
    const SamplePlan plan(samples_of(options.data, blocks, Split::kTrain, held_out, options.seed),
                          order_of(options, size));
    std::optional<EvalPlan> eval_plan;
    if (evaluates) {
      const auto eval_blocks = eval ? blocks_of(*eval, options) : blocks;
      eval_plan.emplace(samples_of(options.data, eval_blocks, Split::kEval, held_out, options.seed),
                        options.eval_batch, size);
    }
    return std::make_unique<const Parts>(Parts{std::move(options), rank, size, std::move(train),
                                               std::move(eval), held_out, blocks, plan, eval_plan});
  }

  StepBatches batches(int64_t step) const {
    auto step_plan = plan.step_plan(step);
    StepBatches result{.num_targets = step_plan.num_targets,
                       .samples_end = step_plan.samples_end,
                       .epoch = step_plan.epoch};
    const auto count = static_cast<int64_t>(step_plan.samples.size());
    const int64_t rows = options.per_device_batch;
    for (int64_t micro = 0; micro < options.accumulation; ++micro) {
      const int64_t begin = std::min((micro * size + rank) * rows, count);
      const int64_t end = std::min(begin + rows, count);
      const auto samples = std::span(step_plan.samples).subspan(begin, end - begin);
      result.micro_batches.push_back(
          make_batch(train.tokens, blocks, samples, step_plan.epoch_index * blocks.count()));
    }
    result.samples = std::move(step_plan.samples);
    return result;
  }

  tensor::Batch eval_batch(int64_t k) const {
    const auto& data = eval ? *eval : train;
    return make_batch(data.tokens, blocks_of(data, options), eval_plan->samples(k, rank), 0);
  }
};

struct Loader::Prefetch {
  Prefetch(Prefetcher<StepBatches>::Make make, int64_t depth) : steps(std::move(make), depth) {}

  Prefetcher<StepBatches> steps;
};

Loader::Loader(const LoaderOptions& options, int rank, int size)
    : parts_(Parts::open(options, rank, size)) {
  if (options.data.dataloader_num_workers == 0) return;
  const auto make = [parts = parts_.get()](int64_t step) { return parts->batches(step); };
  prefetch_ = std::make_unique<Prefetch>(make, options.data.dataloader_prefetch_factor);
}

Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&& other) noexcept {
  prefetch_ = std::move(other.prefetch_);  // first: the thread uses the parts
  parts_ = std::move(other.parts_);
  return *this;
}
Loader::~Loader() = default;

int64_t Loader::num_samples() const { return parts_->plan.num_samples(); }
int64_t Loader::steps_per_epoch() const { return parts_->plan.steps_per_epoch(); }
int64_t Loader::step_of(int64_t samples) const { return parts_->plan.step_of(samples); }

StepBatches Loader::batches(int64_t step) const {
  return prefetch_ ? prefetch_->steps.get(step) : parts_->batches(step);
}

int64_t Loader::num_eval_batches() const {
  return parts_->eval_plan ? parts_->eval_plan->num_batches() : 0;
}
int64_t Loader::num_eval_samples() const {
  return parts_->eval_plan ? parts_->eval_plan->num_samples() : 0;
}
int64_t Loader::num_eval_targets() const {
  return parts_->eval_plan ? parts_->eval_plan->num_targets() : 0;
}
tensor::Batch Loader::eval_batch(int64_t k) const {
  SKEIN_CHECK(parts_->eval_plan, "this loader does not evaluate");
  return parts_->eval_batch(k);
}

std::string Loader::data_digest() const {
  return digest(fmt::format("data {} block_size {} held_out {} samples {}{}", parts_->train.digest,
                            parts_->options.data.block_size, parts_->held_out, num_samples(),
                            parts_->options.data.dataloader_drop_last ? " drop_last" : ""));
}

}  // namespace skein::data
