// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "skein/core/error.h"

namespace skein::rollout {
namespace {

void check(const Request& request, size_t number, const model::Model& model) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("prompt {} {}", number + 1, why));
  };
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) refuse("is empty: there is nothing to continue");
  if (length >= model.max_positions()) {
    refuse(fmt::format("has {} tokens and leaves no room: the model knows {} positions", length,
                       model.max_positions()));
  }
  for (const auto token : request.prompt) {
    if (token >= 0 && token < model.vocab_size()) continue;
    refuse(fmt::format(
        "holds token {}, but the model's vocabulary has {}: is the tokenizer another model's?",
        token, model.vocab_size()));
  }
}

// A request on its way.
struct Row {
  size_t request = 0;
  DrawKey key{};
  std::vector<int64_t> tokens;  // the prompt's and new ones
  int64_t room = 0;             // for further ones
  Finish at_the_end = Finish::kLength;
  std::vector<int64_t> seen;  // every token once
  std::unordered_set<int64_t> seen_set;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  void see(int64_t token) {
    if (seen_set.insert(token).second) seen.push_back(token);
  }
};

// B rows, T tokens, C channels, V vocabulary
class Batch {
 public:
  Batch(const model::Model& model, tensor::Units& units, at::Device device,
        const GenerateOptions& options)
      : model_(model),
        units_(units),
        device_(device),
        options_(options),
        sampler_(options.sampling),
        cache_(0, 0) {}

  // Requests first … first + count - 1.
  void run(std::span<const Request> requests, size_t first, size_t count,
           std::vector<Continuation>& results) {
    begin(requests, first, count);
    auto logits = read_all();
    while (true) {
      take_tokens(logits, results);
      if (rows_.empty() || (options_.is_abandoned && options_.is_abandoned())) return;
      if (options_.on_progress) options_.on_progress(++steps_, 0);
      logits = must_begin_anew() ? read_all() : step();
    }
  }

 private:
  void begin(std::span<const Request> requests, size_t first, size_t count) {
    capacity_ = 0;
    rows_.clear();
    for (size_t i = first; i < first + count; ++i) {
      const auto length = static_cast<int64_t>(requests[i].prompt.size());
      const auto left = model_.max_positions() - length;
      Row row{.request = i,
              .key = {.prompt = requests[i].prompt_id, .sample = requests[i].sample},
              .tokens = requests[i].prompt};
      row.room = std::min(options_.max_new_tokens, left);
      row.at_the_end = left < options_.max_new_tokens ? Finish::kPositions : Finish::kLength;
      for (const auto token : requests[i].prompt) row.see(token);
      capacity_ = std::max(capacity_, length + row.room);
      rows_.push_back(std::move(row));
    }
  }

  // The last token of a row may have made its text longer than what the cache holds is made for.
  bool must_begin_anew() const {
    return std::ranges::any_of(
        rows_, [&](const Row& row) { return model_.outgrows(row.length() - 1, row.length()); });
  }

  // All tokens into an empty cache, padded on the right; the logits of each row's last token.
  at::Tensor read_all() {
    std::vector<int64_t> lengths;
    lengths.reserve(rows_.size());
    for (const auto& row : rows_) lengths.push_back(row.length());
    const auto count = static_cast<int64_t>(lengths.size());
    cache_ = model::KvCache(count, capacity_);
    auto tokens = at::zeros({count, *std::ranges::max_element(lengths)}, at::kLong);
    auto last = at::empty({count, 1, 1}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      const auto& row = rows_[static_cast<size_t>(i)];
      std::ranges::copy(row.tokens, tokens[i].mutable_data_ptr<int64_t>());
      last.mutable_data_ptr<int64_t>()[i] = row.length() - 1;
    }
    const auto hidden = model_.decode(tokens.to(device_), cache_, units_, lengths);  // (B, T, C)
    const auto index = last.to(device_).expand({count, 1, hidden.size(2)});
    return logits_of(hidden.gather(1, index));
  }

  at::Tensor step() {
    auto tokens = at::empty({static_cast<int64_t>(rows_.size()), 1}, at::kLong);
    for (size_t i = 0; i < rows_.size(); ++i) {
      tokens.mutable_data_ptr<int64_t>()[i] = rows_[i].tokens.back();
    }
    return logits_of(model_.decode(tokens.to(device_), cache_, units_));
  }

  at::Tensor logits_of(const at::Tensor& hidden) {  // (B, 1, C) -> (B, V), on the host
    return model_.head_logits(hidden, units_).squeeze(1).to(at::kCPU, at::kFloat).contiguous();
  }

  // Picks a token for every row, and drops the rows that end with it.
  void take_tokens(const at::Tensor& logits, std::vector<Continuation>& results) {
    const auto vocabulary = static_cast<size_t>(logits.size(1));
    std::vector<int64_t> kept;
    std::vector<Row> going_on;
    for (size_t i = 0; i < rows_.size(); ++i) {
      auto& row = rows_[i];
      const std::span scores(logits.mutable_data_ptr<float>() + i * vocabulary, vocabulary);
      const auto before = options_.log_probs ? log_probs_of(scores) : std::vector<double>();
      row.key.position = static_cast<uint64_t>(row.length());
      row.tokens.push_back(sampler_.pick(scores, row.seen, row.key));
      auto& result = results[row.request];
      if (options_.log_probs) {
        result.log_probs.push_back(before[static_cast<size_t>(row.tokens.back())]);
      }
      if (is_last_token(row, result)) continue;
      kept.push_back(static_cast<int64_t>(i));
      going_on.push_back(std::move(row));
    }
    if (kept.size() < rows_.size() && !kept.empty()) cache_.keep_rows(kept);
    rows_ = std::move(going_on);
  }

  std::vector<double> log_probs_of(std::span<const float> scores) const {
    const double temperature =
        options_.sampling.temperature > 0 ? options_.sampling.temperature : 1;
    const double best = *std::ranges::max_element(scores);
    double sum = 0;
    std::vector<double> found;
    for (const auto score : scores) found.push_back((score - best) / temperature);
    for (const auto value : found) sum += std::exp(value);
    for (auto& value : found) value -= std::log(sum);
    return found;
  }

  bool is_last_token(Row& row, Continuation& result) {
    const auto token = row.tokens.back();
    result.tokens.push_back(token);
    row.see(token);
    --row.room;
    const bool goes_on = !options_.on_token || options_.on_token(row.request, token);
    if (std::ranges::count(options_.stop_tokens, token) > 0) {
      result.finish = Finish::kStopToken;
    } else if (!goes_on) {
      result.finish = Finish::kCallback;
    } else if (row.room == 0) {
      result.finish = row.at_the_end;
    } else {
      return false;
    }
    return true;
  }

  const model::Model& model_;
  tensor::Units& units_;
  at::Device device_;
  const GenerateOptions& options_;
  Sampler sampler_;
  model::KvCache cache_;
  int64_t capacity_ = 0, steps_ = 0;
  std::vector<Row> rows_;
};

}  // namespace

const char* finish_reason(Finish finish) {
  if (finish == Finish::kLength) return "length";
  return finish == Finish::kPositions ? "positions" : "stop";
}

std::vector<Continuation> generate(const model::Model& model, tensor::Units& units,
                                   at::Device device, std::span<const Request> requests,
                                   const GenerateOptions& options) {
  if (options.max_new_tokens < 1) {
    throw UserError(
        fmt::format("max_new_tokens is {}, expected at least 1", options.max_new_tokens));
  }
  for (size_t i = 0; i < requests.size(); ++i) check(requests[i], i, model);
  const at::NoGradGuard no_grad;
  const model::StandingWeights standing(model);
  std::vector<Continuation> results(requests.size());
  Batch batch(model, units, device, options);
  const auto at_once = static_cast<size_t>(options.max_rows > 0 ? options.max_rows : 64);
  for (size_t first = 0; first < requests.size(); first += at_once) {
    batch.run(requests, first, std::min(at_once, requests.size() - first), results);
  }
  return results;
}

}  // namespace skein::rollout
