// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/passes.h"

#include <ATen/ops/index_select.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/ops/decode/sampling_kernel.h"
#include "skein/rollout/host_numbers.h"

namespace skein::rollout {
namespace {

// Shapes that are recorded: a few, so that rows that end one by one need no new one each time.
int64_t rounded_rows(int64_t rows) {
  int64_t step = 1;
  while (step * 8 < rows) step *= 2;
  return (rows + step - 1) / step * step;
}

ops::SamplingOptions draws_of(const SamplingOptions& sampling) {
  return {.temperature = sampling.temperature,
          .top_k = sampling.top_k,
          .top_p = sampling.top_p,
          .min_p = sampling.min_p,
          .repetition_penalty = sampling.repetition_penalty,
          .log_probs = true};
}

// Texts from their first tokens on, as attention within documents knows them.
std::shared_ptr<const tensor::DocumentRun> run_of(std::span<const Passes::Piece> pieces,
                                                  const at::Tensor& positions, at::Device device) {
  auto run = std::make_shared<tensor::DocumentRun>();
  std::vector<int32_t> bounds{0};
  for (const auto& [text, from, to] : pieces) {
    bounds.push_back(bounds.back() + static_cast<int32_t>(to - from));
    run->longest = std::max(run->longest, to - from);
  }
  run->ends.assign(bounds.begin() + 1, bounds.end());
  run->longest_own = run->longest;
  run->bounds = to_device(std::span<const int32_t>(bounds), device);
  run->positions = positions;
  return run;
}

}  // namespace

Passes::Passes(const model::Model& model, tensor::Units& units, at::Device device)
    : model_(model), units_(units), device_(device), cache_(model.make_cache()) {}

void Passes::begin(const Setting& setting) {
  const auto draws = draws_of(setting.sampling);
  const bool forgets = draws.repetition_penalty == 1;
  const RowState::Size wanted{.rows = rounded_rows(setting.rows),
                              .pages_per_row = setting.pages_per_row,
                              .vocabulary = forgets ? 0 : model_.vocab_size()};
  const bool fits = state_ && state_->size().rows >= wanted.rows &&
                    state_->size().pages_per_row >= wanted.pages_per_row &&
                    state_->size().vocabulary == wanted.vocabulary;
  if (!fits || !(draws == draws_)) forget();
  if (!fits) state_.emplace(device_, wanted);
  draws_ = draws;
  records_ = setting.records && device_.is_cuda() && !model_.turns_by_length();
}

void Passes::forget() {
  recorded_.clear();
  memory_of_graphs_ = nullptr;
}

at::Tensor Passes::read(std::span<const Piece> pieces) {
  std::vector<int64_t> tokens, positions, last, lengths;
  std::vector<int32_t> rows, pages;
  size_t width = 0;
  for (const auto& piece : pieces) width = std::max(width, piece.text->pages.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [text, from, to] = pieces[i];
    tokens.insert(tokens.end(), text->tokens.begin() + from, text->tokens.begin() + to);
    for (int64_t at = from; at < to; ++at) positions.push_back(at);
    rows.insert(rows.end(), static_cast<size_t>(to - from), static_cast<int32_t>(i));
    pages.insert(pages.end(), text->pages.begin(), text->pages.end());
    pages.resize((i + 1) * width);
    last.push_back(std::ssize(tokens) - 1);
    lengths.push_back(text->length());
  }
  const bool from_the_first =
      std::ranges::all_of(pieces, [](const auto& p) { return p.from == 0; });
  SKEIN_CHECK(from_the_first || pieces.size() == 1, "later pieces come alone");
  const auto places = to_device(std::span<const int64_t>(positions), device_);
  cache_.begin({.positions = places,
                .pages = to_device(std::span<const int32_t>(pages), device_)
                             .view({std::ssize(pieces), static_cast<int64_t>(width)}),
                .rows = to_device(std::span<const int32_t>(rows), device_),
                .beginnings = from_the_first ? run_of(pieces, places, device_) : nullptr});
  const auto ids = to_device(std::span<const int64_t>(tokens), device_).unsqueeze(0);
  const auto own = model_.turns_by_length() ? std::span(lengths) : std::span<int64_t>();
  const auto hidden = model_.decode(ids, cache_, units_, own);  // (1, T, C)
  return hidden.squeeze(0).index_select(0, to_device(std::span<const int64_t>(last), device_));
}

OnTheWay Passes::join(int64_t first, std::span<const Text* const> texts, const at::Tensor& hidden,
                      std::span<const int64_t> owners) {
  std::vector<int64_t> keys, samples, positions;
  std::vector<std::span<const int64_t>> held;
  for (const auto* text : texts) {
    keys.push_back(static_cast<int64_t>(text->key));
    samples.push_back(static_cast<int64_t>(text->sample));
    positions.push_back(text->length() - 1);
    held.emplace_back(text->tokens);
  }
  const auto device = [&](const std::vector<int64_t>& values) {
    return to_device(std::span(values), device_);
  };
  auto logits = model_.head_logits(hidden.unsqueeze(0), units_).squeeze(0);
  logits = logits.index_select(0, to_device(owners, device_));
  state_->see(first, held);
  const auto count = std::ssize(texts);
  state_->put(first, ops::sample(logits, draws_,
                                 {.keys = device(keys),
                                  .samples = device(samples),
                                  .positions = device(positions),
                                  .seen = state_->seen(first, count)}));
  return state_->to_host(first, count);
}

void Passes::copy_pages(std::span<const int64_t> from, std::span<const int64_t> to) {
  if (!from.empty()) cache_.copy_pages(to_device(from, device_), to_device(to, device_));
}

void Passes::tell(std::span<const Text* const> texts, int64_t count) {
  std::vector<RowState::Row> rows;
  rows.reserve(texts.size());
  for (const auto* text : texts) {
    rows.push_back({.position = text->length() - 1,
                    .key = text->key,
                    .sample = text->sample,
                    .pages = text->pages});
  }
  state_->tell(rows, count);
}

OnTheWay Passes::step(std::span<const Text* const> texts) {
  const auto rows = std::ssize(texts);
  if (records_) {
    const auto count = rounded_rows(rows);
    tell(texts, count);
    decode_again(count);
  } else {
    tell(texts, rows);
    std::vector<int64_t> lengths;
    for (const auto* text : texts) lengths.push_back(text->length());
    decode(rows, model_.turns_by_length() ? std::span(lengths) : std::span<int64_t>());
  }
  return state_->to_host(0, rows);
}

void Passes::idle() {
  tell({}, 1);
  const std::vector<int64_t> one{1};
  decode(1, model_.turns_by_length() ? std::span(one) : std::span<const int64_t>());
}

void Passes::decode(int64_t count, std::span<const int64_t> lengths) {
  cache_.begin({.positions = state_->positions(count), .pages = state_->pages(count)});
  const auto tokens = state_->tokens(count).unsqueeze(1);
  const auto hidden = model_.decode(tokens, cache_, units_, lengths);  // (R, 1, C)
  const auto logits = model_.head_logits(hidden, units_).squeeze(1);
  state_->put(0, ops::sample(logits, draws_, state_->draws(count)));
}

void Passes::decode_again(int64_t count) {
  auto& recorded = recorded_[count];
  if (!recorded.was_run) {
    recorded.was_run = true;
    return decode(count, {});
  }
  if (!recorded.graph.is_recorded()) {
    recorded.graph.record([&] { decode(count, {}); }, memory_of_graphs_);
    if (!memory_of_graphs_) memory_of_graphs_ = &recorded.graph;
  }
  recorded.graph.replay();
}

}  // namespace skein::rollout
