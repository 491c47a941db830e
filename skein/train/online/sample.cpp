// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/ops/device.h"
#include "skein/plan/model_texts.h"
#include "skein/plan/rules.h"
#include "skein/rollout/sampling/generation_config.h"
#include "skein/text/text_stream.h"
#include "skein/trace/trace.h"

namespace skein::train {
namespace {

// The rest is for the cache.
constexpr double kMostOfFree = 0.6;

// As the model that the run saves says it.
std::vector<int64_t> ends_of(const config::RunConfig& config, const text::TextCodec& codec) {
  constexpr const char* kName = "generation_config.json";
  const auto texts = plan::texts_beside_weights(config);
  std::vector<int64_t> ends;
  if (const auto found = texts.files.find(kName); found != texts.files.end()) {
    ends = rollout::parse_generation_config(found->second, kName).eos_token_ids;
  }
  if (ends.empty()) {
    const fs::path folder = config.model.model_name_or_path;
    ends = rollout::read_generation_config(std::span(&folder, 1)).eos_token_ids;
  }
  if (const auto end = codec.end(); end && (ends.empty() || codec.is_bytes())) ends.push_back(*end);
  return ends;  // none: plan::check_online_models has seen other ends
}

}  // namespace

PolicySampler::PolicySampler(Session& run, const text::TextCodec& codec)
    : run_(run),
      codec_(codec),
      stop_tokens_(ends_of(run.config, codec)),
      generator_(*run.model, run.sharded, run.world.device) {}

bool PolicySampler::ends(int64_t token) const {
  return std::ranges::find(stop_tokens_, token) != stop_tokens_.end();
}

bool PolicySampler::may_gather() const {
  if (!run_.config.rollout.ds3_gather_for_generation) return false;
  bool fits = true;
  if (run_.world.device.is_cuda()) {
    int64_t bytes = 0;
    for (const auto& parameter : run_.model->table().parameters) {
      bytes += parameter.memory_numel() * static_cast<int64_t>(c10::elementSize(parameter.dtype));
    }
    fits =
        static_cast<double>(bytes) < kMostOfFree * static_cast<double>(ops::free_device_memory());
  }
  return run_.world.group.sum(int64_t{!fits}) == 0;
}

rollout::GenerateOptions PolicySampler::options(const Wish& wish) const {
  const auto& config = run_.config.rollout;
  rollout::GenerateOptions options{.sampling = {.temperature = config.temperature,
                                                .top_k = config.top_k,
                                                .top_p = config.top_p,
                                                .min_p = config.min_p,
                                                .repetition_penalty = config.repetition_penalty,
                                                .seed = static_cast<uint64_t>(run_.config.seed),
                                                .step = static_cast<uint64_t>(wish.step)},
                                   .max_new_tokens = config.max_completion_length,
                                   .stop_tokens = stop_tokens_,
                                   .cache_bytes = config.rollout_cache_size,
                                   .log_probs = wish.log_probs};
  if (config.rollout_max_rows > 0) options.max_rows = config.rollout_max_rows;
  // Weights that the host updates are waited for, and spans are timed, at every use of a unit.
  options.may_record = !run_.sharded.has_host_ranges() && !trace::is_recording();
  options.on_progress = [what = wish.what](int64_t tokens, int64_t completions) {
    board::report_progress(fmt::format("{}: {} tokens, {} completions", what, tokens, completions));
  };
  return options;
}

std::optional<std::vector<Sampled>> PolicySampler::sample(const Prompts& prompts,
                                                          std::span<const int64_t> numbers,
                                                          const Wish& wish) {
  std::vector<Sampled> samples;
  for (const auto number : numbers) {
    samples.push_back({.number = number,
                       .prompt = number / wish.generations,
                       .generation = number % wish.generations});
  }
  std::vector<Sampled*> all;
  for (auto& sample : samples) all.push_back(&sample);
  if (!write(prompts, all, wish)) return std::nullopt;
  return samples;
}

bool PolicySampler::write(const Prompts& prompts, std::span<Sampled* const> samples,
                          const Wish& wish) {
  const board::HostWork work(wish.what);
  std::vector<rollout::Request> requests;
  for (const auto* sample : samples) {
    const auto room = run_.config.rollout.max_completion_length - std::ssize(sample->tokens);
    const auto at = static_cast<size_t>(sample->prompt);
    auto tokens = prompts.tokens[at];
    tokens.insert(tokens.end(), sample->tokens.begin(), sample->tokens.end());
    requests.push_back({.prompt = std::move(tokens),
                        .prompt_id = static_cast<uint64_t>(prompts.samples[at]),
                        .sample = static_cast<uint64_t>(sample->generation),
                        .max_new_tokens = std::max<int64_t>(1, room)});
  }
  auto options = this->options(wish);
  options.is_abandoned = run_.world.stop_requested;
  std::vector<text::TextStream> streams(samples.size(), text::TextStream(run_.config.rollout.stop));
  options.on_token = [&](size_t request, int64_t token) {
    if (ends(token)) return true;
    samples[request]->text += streams[request].add(codec_.bytes_of(static_cast<uint32_t>(token)));
    return !streams[request].is_stopped();
  };
  // Where all weights are whole each rank samples by itself. Else passes gather unit after unit,
  // and ranks that are done keep the others company.
  const bool divides = plan::zero_stage(run_.config.parallel.distributed_strategy) == 3;
  const bool whole = !divides || may_gather();
  options.weights_move = divides;
  if (!whole) {
    options.goes_on = [&](bool has_work) { return run_.world.group.sum(int64_t{has_work}) > 0; };
  }
  const auto hold = whole ? run_.sharded.hold_whole() : run_.sharded.hold_roots();
  auto made = generator_.generate(requests, options);
  if (run_.world.stop_requested()) return false;
  for (size_t i = 0; i < made.size(); ++i) {
    auto& [tokens, log_probs, finish] = made[i];
    auto& sample = *samples[i];
    sample.text += streams[i].finish();
    sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
    sample.log_probs.insert(sample.log_probs.end(), log_probs.begin(), log_probs.end());
    if (!sample.foreign.empty()) sample.foreign.resize(sample.tokens.size(), 0);
    sample.finished = finish == rollout::Finish::kStopToken || streams[i].is_stopped();
  }
  return true;
}

}  // namespace skein::train
