// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/batch.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"

namespace skein::tensor {
namespace {

// Through pinned memory: a copy from pageable memory would wait for the GPU's work before it.
at::Tensor moved(const at::Tensor& tensor, at::Device device) {
  if (tensor.device() == device || !device.is_cuda()) return tensor.to(device);
  return tensor.pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

// A copy also on the CPU: the values belong to the host batch.
template <typename T>
at::Tensor copied(const std::vector<T>& values, at::IntArrayRef shape, at::Device device) {
  auto* first = const_cast<T*>(values.data());  // NOLINT: only read
  const auto view = at::from_blob(first, shape, c10::CppTypeToScalarType<T>::value);
  return device.is_cuda() ? moved(view, device) : view.clone();
}

template <typename T>
at::Tensor copied(const std::vector<T>& values, at::Device device) {
  return copied(values, {static_cast<int64_t>(values.size())}, device);
}

void check_ends(const HostBatch& batch) {
  SKEIN_CHECK(batch.rows == 1, "a run of documents is one row");
  SKEIN_CHECK(batch.documents.size() == batch.document_ends.size(), "one key for each document");
  SKEIN_CHECK(batch.document_ends.back() == batch.length, "the last document ends the row");
  SKEIN_CHECK(batch.continues.empty() || batch.continues.size() == batch.documents.size(),
              "it is known of each document whether it continues one");
}

// Each prompt with the answers behind it.
void find_prompts(DocumentRun& run) {
  auto& shared = run.shared;
  for (size_t i = 0; i < run.continues.size(); ++i) {
    const int64_t prompt = run.continues[i];
    if (prompt < 0) continue;
    const auto at = static_cast<size_t>(prompt);
    SKEIN_CHECK(at < i && run.continues[at] < 0, "a prompt continues no document");
    const auto own = run.span(i), before = run.span(at);
    if (at + 1 == i) {
      shared.prompts.push_back(before);
      shared.answers.push_back(own);
    } else {
      SKEIN_CHECK(run.continues[i - 1] == prompt, "answers stand right behind their prompt");
      shared.answers.back().end = own.end;
    }
    shared.longest_prompt = std::max(shared.longest_prompt, before.length());
    shared.longest_answers = std::max(shared.longest_answers, shared.answers.back().length());
  }
}

// Where the tokens of all spans lie, and where each begins among them.
void copy_spans(const std::vector<Span>& spans, at::Device device, at::Tensor& tokens,
                at::Tensor& bounds) {
  std::vector<int64_t> places;
  std::vector<int32_t> begins{0};
  for (const auto& [begin, end] : spans) {
    for (int64_t t = begin; t < end; ++t) places.push_back(t);
    begins.push_back(static_cast<int32_t>(places.size()));
  }
  tokens = copied(places, device);
  bounds = copied(begins, device);
}

std::shared_ptr<const DocumentRun> make_run(const HostBatch& batch, at::Device device) {
  if (batch.document_ends.empty()) return nullptr;
  check_ends(batch);
  DocumentRun run{.ends = batch.document_ends, .continues = batch.continues};
  find_prompts(run);
  std::vector<int32_t> bounds{0};
  std::vector<int64_t> positions, documents, places;
  for (size_t i = 0; i < run.ends.size(); ++i) {
    const int64_t length = run.span(i).length(), before = run.prompt_of(i).length();
    SKEIN_CHECK(length > 0, "a document has a token at least");
    run.longest = std::max(run.longest, before + length);
    run.longest_own = std::max(run.longest_own, length);
    for (int64_t t = 0; t < length; ++t) positions.push_back(before + t);
    documents.resize(positions.size(), batch.documents[i]);
    bounds.push_back(run.ends[i]);
  }
  for (size_t t = 0; t < batch.targets.size(); ++t) {
    if (batch.targets[t] != kIgnore) places.push_back(static_cast<int64_t>(t));
  }
  run.bounds = copied(bounds, device);
  run.positions = copied(positions, device);
  run.documents = copied(documents, device);
  run.places = copied(places, device);
  auto& shared = run.shared;
  if (shared.any()) {
    copy_spans(shared.prompts, device, shared.prompt_tokens, shared.prompt_bounds);
    copy_spans(shared.answers, device, shared.answer_tokens, shared.answer_bounds);
  }
  return std::make_shared<const DocumentRun>(std::move(run));
}

std::shared_ptr<const DocumentRun> moved(const std::shared_ptr<const DocumentRun>& run,
                                         at::Device device) {
  if (!run) return nullptr;
  auto copy = *run;
  auto& shared = copy.shared;
  for (auto* tensor :
       {&copy.bounds, &copy.positions, &copy.documents, &copy.places, &shared.prompt_tokens,
        &shared.answer_tokens, &shared.prompt_bounds, &shared.answer_bounds}) {
    if (tensor->defined()) *tensor = moved(*tensor, device);
  }
  return std::make_shared<const DocumentRun>(std::move(copy));
}

// Where a document's tokens lie in the batch as one row.
Span span_of(const HostBatch& batch, int64_t document) {
  const auto at = static_cast<size_t>(document);
  if (!batch.document_ends.empty()) {
    return {at == 0 ? 0 : batch.document_ends[at - 1], batch.document_ends[at]};
  }
  const int64_t begin = document * batch.length;
  return {begin, begin + (batch.row_lengths.empty() ? batch.length : batch.row_lengths[at])};
}

// Where what is told of a target lies: behind each other, or each at the place of its token.
enum class Order { kTargets, kTokens };

// Of all tokens; -1: it has no target.
std::vector<int64_t> target_places(const HostBatch& batch, Order order) {
  std::vector<int64_t> places(batch.targets.size(), -1);
  int64_t next = 0;
  for (size_t t = 0; t < batch.targets.size(); ++t) {
    if (batch.targets[t] == kIgnore) continue;
    places[t] = order == Order::kTokens ? static_cast<int64_t>(t) : next;
    ++next;
  }
  return places;
}

// The targets of some documents, padded to the longest; `behind`: none.
struct TargetTable {
  std::vector<int64_t> places;  // rows x longest
  std::vector<int64_t> counts;
  int64_t longest = 1;
};

TargetTable target_table(const HostBatch& batch, const std::vector<int64_t>& documents,
                         Order order) {
  const auto places = target_places(batch, order);
  const int64_t behind = order == Order::kTokens ? std::ssize(batch.targets) : batch.num_targets;
  std::vector<std::vector<int64_t>> rows;
  TargetTable table;
  for (const int64_t document : documents) {
    const auto [begin, end] = span_of(batch, document);
    auto& own = rows.emplace_back();
    for (int64_t t = begin; t < end; ++t) {
      if (places[static_cast<size_t>(t)] >= 0) own.push_back(places[static_cast<size_t>(t)]);
    }
    table.counts.push_back(std::ssize(own));
    table.longest = std::max(table.longest, std::ssize(own));
  }
  for (auto& own : rows) {
    own.resize(static_cast<size_t>(table.longest), behind);
    table.places.insert(table.places.end(), own.begin(), own.end());
  }
  return table;
}

std::shared_ptr<const Answers> make_answers(const HostBatch& batch, at::Device device) {
  if (!batch.answers) return nullptr;
  const auto& host = *batch.answers;
  const auto order = batch.document_ends.empty() ? Order::kTokens : Order::kTargets;
  const auto table = target_table(batch, host.documents, order);
  std::vector<int64_t> ends;
  for (const int64_t document : host.documents) ends.push_back(span_of(batch, document).end - 1);
  Answers answers{.ends = copied(ends, device),
                  .targets = copied(table.places, {std::ssize(ends), table.longest}, device),
                  .num_targets = copied(table.counts, device),
                  .samples = host.samples};
  if (!host.margins.empty()) answers.margins = copied(host.margins, device);
  if (host.alone && host.desirable.size() == host.documents.size()) {
    answers.desirable = copied(host.desirable, device).to(at::kBool);
  }
  return std::make_shared<const Answers>(std::move(answers));
}

std::vector<double> weights_of(const HostEpisodes& host) {
  const std::vector<double> all(host.documents.size(), 1);
  const auto& weights = host.weights.empty() ? all : host.weights;
  SKEIN_CHECK(weights.size() == host.documents.size(), "a weight for each completion");
  return weights;
}

std::shared_ptr<const Episodes> make_episodes(const HostBatch& batch, at::Device device) {
  if (!batch.episodes) return nullptr;
  const auto& host = *batch.episodes;
  const auto table = target_table(batch, host.documents, Order::kTargets);
  std::vector<int64_t> places, owners(static_cast<size_t>(batch.num_targets), -1);
  for (size_t t = 0; t < batch.targets.size(); ++t) {
    if (batch.targets[t] != kIgnore) places.push_back(static_cast<int64_t>(t));
  }
  for (size_t i = 0; i < table.places.size(); ++i) {
    if (table.places[i] == batch.num_targets) continue;
    owners[static_cast<size_t>(table.places[i])] = static_cast<int64_t>(i) / table.longest;
  }
  SKEIN_CHECK(std::ssize(places) == batch.num_targets && std::ranges::count(owners, -1) == 0,
              "every target is a completion's");
  Episodes episodes{
      .places = copied(places, device),
      .owners = copied(owners, device),
      .targets = copied(table.places, {std::ssize(host.documents), table.longest}, device),
      .num_targets = copied(table.counts, device),
      .weights = copied(weights_of(host), device),
      .samples = host.samples};
  const auto told = [&](const std::vector<double>& values) {
    // Of a batch without targets everything is told.
    if (values.empty() && batch.num_targets > 0) return at::Tensor();
    SKEIN_CHECK(std::ssize(values) == batch.num_targets, "a number for each target");
    return copied(values, device);
  };
  episodes.advantages = told(host.advantages);
  episodes.old_log_probs = told(host.old_log_probs);
  episodes.reference_log_probs = told(host.reference_log_probs);
  episodes.rollout_log_probs = told(host.rollout_log_probs);
  episodes.returns = told(host.returns);
  episodes.old_values = told(host.old_values);
  return std::make_shared<const Episodes>(std::move(episodes));
}

std::shared_ptr<const Answers> moved(const std::shared_ptr<const Answers>& answers,
                                     at::Device device) {
  if (!answers) return nullptr;
  auto copy = *answers;
  for (auto* tensor :
       {&copy.ends, &copy.targets, &copy.num_targets, &copy.margins, &copy.desirable}) {
    if (tensor->defined()) *tensor = moved(*tensor, device);
  }
  return std::make_shared<const Answers>(std::move(copy));
}

std::shared_ptr<const Episodes> moved(const std::shared_ptr<const Episodes>& episodes,
                                      at::Device device) {
  if (!episodes) return nullptr;
  auto copy = *episodes;
  for (auto* tensor : {&copy.places, &copy.owners, &copy.targets, &copy.num_targets, &copy.weights,
                       &copy.advantages, &copy.old_log_probs, &copy.reference_log_probs,
                       &copy.rollout_log_probs, &copy.returns, &copy.old_values}) {
    if (tensor->defined()) *tensor = moved(*tensor, device);
  }
  return std::make_shared<const Episodes>(std::move(copy));
}

}  // namespace

Batch to_device(const Batch& batch, at::Device device) {
  return {moved(batch.tokens, device),
          moved(batch.targets, device),
          moved(batch.documents, device),
          batch.num_targets,
          moved(batch.run, device),
          batch.row_lengths.defined() ? moved(batch.row_lengths, device) : at::Tensor(),
          moved(batch.answers, device),
          moved(batch.episodes, device)};
}

Batch to_device(const HostBatch& batch, at::Device device) {
  return {copied(batch.tokens, {batch.rows, batch.length}, device),
          copied(batch.targets, {batch.rows, batch.length}, device),
          copied(batch.documents, device),
          batch.num_targets,
          make_run(batch, device),
          batch.row_lengths.empty() ? at::Tensor() : copied(batch.row_lengths, device),
          make_answers(batch, device),
          make_episodes(batch, device)};
}

Batch with_episodes(const Batch& batch, Episodes episodes) {
  auto copy = batch;
  copy.episodes = std::make_shared<const Episodes>(std::move(episodes));
  return copy;
}

Counts episode_counts(const HostBatch& batch) {
  SKEIN_CHECK(batch.episodes, "a batch of completions");
  const auto& documents = batch.episodes->documents;
  const auto weights = weights_of(*batch.episodes);
  const auto table = target_table(batch, documents, Order::kTargets);
  Counts counts{.samples = std::ssize(documents)};
  for (size_t i = 0; i < documents.size(); ++i) {
    if (weights[i] != 0) counts.targets += table.counts[i];
  }
  return counts;
}

}  // namespace skein::tensor
