// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/replies.h"

#include <algorithm>

#include "skein/core/error.h"
#include "skein/plan/run_data.h"
#include "skein/text/turn_end.h"

namespace skein::train {

Replies::Replies(const Session& run, PolicySampler& sampler)
    : sampler_(sampler),
      max_turns_(run.config.reward.reward_program.empty() ? 1 : run.config.reward.max_turns),
      max_tokens_(run.config.rollout.max_completion_length),
      max_positions_(run.model->max_positions()) {
  if (max_turns_ > 1) tokens_ = plan::open_tokens(run.config);
}

std::vector<int64_t> Replies::tokens_behind(const Sampled& sample,
                                            std::span<const rewards::Message> messages) const {
  SKEIN_CHECK(tokens_.chat_template != nullptr, "a conversation has a template");
  std::vector<text::Message> said;
  for (const auto& message : messages) {
    said.push_back({.role = message.role, .content = message.content});
  }
  const auto text = text::printed_behind(*tokens_.chat_template, said);
  const auto ids = tokens_.tokenizer->encode(text, {.add_special_tokens = false});
  auto first = ids.begin();
  // It has written the token that ends a turn itself; a text of `stop` has no such token behind it.
  const auto& end = tokens_.turn_end.token;
  if (end && sample.tokens.back() == static_cast<int64_t>(*end)) {
    const auto place = std::ranges::find(ids, *end);
    if (place != ids.end()) first = place + 1;
  }
  return {first, ids.end()};
}

void Replies::append(Sampled& sample, std::span<const int64_t> tokens) const {
  sample.foreign.resize(sample.tokens.size(), 0);
  sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
  sample.foreign.resize(sample.tokens.size(), 1);
  const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
  sample.text += tokens_.tokenizer->decode(ids, {.skip_special_tokens = true});
  sample.finished = false;
}

bool Replies::go_on(const Prompts& prompts, std::span<Sampled> samples,
                    std::span<const Reply> replies, const PolicySampler::Wish& wish) {
  std::vector<Sampled*> going;
  for (const auto& reply : replies) {
    auto& sample = samples[reply.sample];
    const auto tokens =
        sample.finished ? tokens_behind(sample, reply.messages) : std::vector<int64_t>();
    const auto& prompt = prompts.tokens[static_cast<size_t>(sample.prompt)];
    const auto most = std::min(max_tokens_, max_positions_ - std::ssize(prompt));
    const auto room = most - std::ssize(sample.tokens) - std::ssize(tokens);
    if (!sample.finished || room < 1) {
      sample.turn = static_cast<int>(max_turns_) - 1;
      continue;
    }
    append(sample, tokens);
    ++sample.turn;
    going.push_back(&sample);
  }
  return sampler_.write(prompts, going, wish);
}

}  // namespace skein::train
