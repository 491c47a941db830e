// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "skein/core/error.h"
#include "skein/data/eval_plan.h"
#include "skein/data/prefetcher.h"
#include "skein/data/runs/run_writer.h"
#include "skein/data/sample_plan.h"

namespace skein::data {
namespace {

SampleOrder order_of(const LoaderOptions& options, int size) {
  SKEIN_CHECK(options.per_device_batch > 0 && options.accumulation > 0 && size > 0,
              "the batch plan gives positive sizes");
  return {.global_batch = options.per_device_batch * options.accumulation * size,
          .seed = options.seed,
          .drop_last = options.data.dataloader_drop_last};
}

RunSamples open(const LoaderOptions& options) {
  return open_blocks({.data = options.data,
                      .model = options.model,
                      .evaluates = options.eval_batch > 0,
                      .seed = options.seed,
                      .vocab_size = options.vocab_size});
}

struct Document {
  int64_t length = 0;
  int64_t number = 0;
};

std::vector<Document> documents_of(const SampleSource& source, std::span<const int64_t> samples,
                                   int64_t first_sample) {
  std::vector<Document> documents;
  std::vector<int64_t> ends;
  for (const int64_t sample : samples) {
    ends.clear();
    source.append_ends(sample, ends);
    int64_t begin = 0;
    int64_t number = (first_sample + sample) * source.documents_per_sample();
    for (const int64_t end : ends) {
      documents.push_back({end - std::exchange(begin, end), number++});
    }
  }
  return documents;
}

// Samples behind each other.
struct WholeSamples {
  std::vector<int64_t> tokens, targets;
  int64_t num_targets = 0;
};

WholeSamples read_samples(const SampleSource& source, std::span<const int64_t> samples) {
  int64_t length = 0;
  for (const int64_t sample : samples) length += source.length(sample);
  WholeSamples whole{std::vector<int64_t>(static_cast<size_t>(length)),
                     std::vector<int64_t>(static_cast<size_t>(length))};
  size_t at = 0;
  for (const int64_t sample : samples) {
    const auto own = static_cast<size_t>(source.length(sample));
    source.read(sample, std::span(whole.tokens).subspan(at, own),
                std::span(whole.targets).subspan(at, own));
    at += own;
    whole.num_targets += source.num_targets(sample);
  }
  return whole;
}

}  // namespace

tensor::HostBatch make_rows(const SampleSource& source, std::span<const int64_t> samples,
                            int64_t first_sample) {
  const auto documents = documents_of(source, samples, first_sample);
  int64_t longest = 1;
  for (const auto& document : documents) longest = std::max(longest, document.length);

  const auto rows = std::max<size_t>(1, documents.size());
  const auto width = static_cast<size_t>(longest);
  tensor::HostBatch batch{.rows = static_cast<int64_t>(rows),
                          .length = longest,
                          .tokens = std::vector<int64_t>(rows * width, 0),
                          .targets = std::vector<int64_t>(rows * width, tensor::kIgnore),
                          .documents = std::vector<int64_t>(rows, 0),
                          .answers = source.answers(samples)};
  const auto whole = read_samples(source, samples);
  auto tokens = whole.tokens.begin();
  auto targets = whole.targets.begin();
  for (size_t row = 0; row < documents.size(); ++row) {
    const auto at = static_cast<std::ptrdiff_t>(row * width);
    std::copy_n(tokens, documents[row].length, batch.tokens.begin() + at);
    std::copy_n(targets, documents[row].length, batch.targets.begin() + at);
    tokens += documents[row].length;
    targets += documents[row].length;
    batch.documents[row] = documents[row].number;
    batch.row_lengths.push_back(documents[row].length);
  }
  batch.num_targets = whole.num_targets;
  const auto is_full = [&](int64_t length) { return length == longest; };
  if (std::ranges::all_of(batch.row_lengths, is_full)) batch.row_lengths.clear();
  return batch;
}

tensor::HostBatch make_run(const SampleSource& source, std::span<const int64_t> samples,
                           int64_t first_sample, bool share_prompts) {
  const auto whole = read_samples(source, samples);
  RunWriter run;
  size_t begin = 0;
  for (const int64_t sample : samples) {
    std::vector<DocumentView> views;
    for (const auto& document : documents_of(source, std::array{sample}, first_sample)) {
      const auto length = static_cast<size_t>(document.length);
      views.push_back({std::span(whole.tokens).subspan(begin, length),
                       std::span(whole.targets).subspan(begin, length), document.number});
      begin += length;
    }
    run.add_group(views, share_prompts ? source.shared_tokens(sample) : 0);
  }
  return run.finish(source.answers(samples));
}

// All that the batches follow from.
struct Loader::Parts {
  Parts(RunSamples run_samples, const LoaderOptions& asked, int own_rank, int num_ranks)
      : options(asked),
        rank(own_rank),
        size(num_ranks),
        samples(std::move(run_samples)),
        plan(plan_of(samples, order_of(options, num_ranks))) {
    SKEIN_CHECK(0 <= rank && rank < size, fmt::format("rank {} of {}", rank, size));
    if (samples.eval) eval_plan.emplace(samples.eval->set, options.eval_batch, size);
  }

  LoaderOptions options;
  int64_t rank;
  int64_t size;
  RunSamples samples;
  SamplePlan plan;
  std::optional<EvalPlan> eval_plan;  // absent: no evaluation

  tensor::HostBatch make_batch(const SampleSource& source, std::span<const int64_t> chosen,
                               int64_t first_document) const {
    return samples.are_runs ? make_run(source, chosen, first_document, samples.share_prompts)
                            : make_rows(source, chosen, first_document);
  }

  // What a step reads, and what of it is not computed.
  void count_tokens(StepBatches& step) const {
    const auto& source = *samples.train.source;
    const bool shares = samples.are_runs && samples.share_prompts;
    for (const int64_t sample : step.samples) {
      const auto documents = documents_of(source, std::array{sample}, 0);
      for (const auto& document : documents) step.lengths.push_back(document.length);
      const auto count = std::ssize(documents);
      const auto once = shares ? shared_length(source.shared_tokens(sample), count) : 0;
      if (once > 0) step.shared.insert(step.shared.end(), static_cast<size_t>(count - 1), once);
    }
  }

  StepBatches batches(int64_t step) const {
    const auto& source = *samples.train.source;
    auto step_plan = plan.step_plan(step);
    StepBatches result{.samples_end = step_plan.samples_end, .epoch = step_plan.epoch};
    for (const int64_t sample : step_plan.samples) result.counts += source.counts_of(sample);
    const int64_t count = step_plan.num_packs();
    const int64_t rows = options.per_device_batch;
    for (int64_t micro = 0; micro < options.accumulation; ++micro) {
      const int64_t begin = std::min((micro * size + rank) * rows, count);
      const int64_t end = std::min(begin + rows, count);
      const auto chosen = step_plan.samples_of(begin, end);
      const int64_t first = step_plan.epoch_index * source.count();
      result.micro_batches.push_back(make_batch(source, chosen, first));
      if (const auto& other = samples.train.mismatched) {
        result.mismatched.push_back(make_batch(*other, chosen, first));
      }
    }
    result.samples = std::move(step_plan.samples);
    count_tokens(result);
    return result;
  }
};

struct Loader::Prefetch {
  Prefetch(Prefetcher<StepBatches>::Make make, int64_t depth) : steps(std::move(make), depth) {}

  Prefetcher<StepBatches> steps;
};

Loader::Loader(const LoaderOptions& options, int rank, int size)
    : Loader(open(options), options, rank, size) {}

Loader::Loader(RunSamples samples, const LoaderOptions& options, int rank, int size)
    : parts_(std::make_unique<const Parts>(std::move(samples), options, rank, size)) {
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
const EpochSteps& Loader::epoch_steps() const { return parts_->plan.epoch_steps(); }
int64_t Loader::step_of(int64_t samples) const { return parts_->plan.step_of(samples); }
const std::string& Loader::data_digest() const { return parts_->samples.digest; }

StepBatches Loader::batches(int64_t step) const {
  return prefetch_ ? prefetch_->steps.get(step) : parts_->batches(step);
}

int64_t Loader::num_eval_batches() const {
  return parts_->eval_plan ? parts_->eval_plan->num_batches() : 0;
}
int64_t Loader::num_eval_samples() const {
  return parts_->eval_plan ? parts_->eval_plan->num_samples() : 0;
}
tensor::Counts Loader::eval_counts() const {
  const auto& eval = parts_->samples.eval;
  tensor::Counts counts;
  for (int64_t i = 0; eval && i < eval->set.count(); ++i) {
    counts += eval->source->counts_of(eval->set.sample(i));
  }
  return counts;
}
tensor::HostBatch Loader::eval_batch(int64_t k) const {
  SKEIN_CHECK(parts_->eval_plan, "this loader does not evaluate");
  return parts_->make_batch(*parts_->samples.eval->source,
                            parts_->eval_plan->samples(k, parts_->rank), 0);
}
std::optional<tensor::HostBatch> Loader::eval_mismatched(int64_t k) const {
  SKEIN_CHECK(parts_->eval_plan, "this loader does not evaluate");
  const auto& source = parts_->samples.eval->mismatched;
  if (!source) return std::nullopt;
  return parts_->make_batch(*source, parts_->eval_plan->samples(k, parts_->rank), 0);
}

}  // namespace skein::data
