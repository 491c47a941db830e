// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/online_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/board/board.h"
#include "skein/config/syntax/suggest.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"
#include "skein/train/online/outcomes.h"
#include "skein/train/run_folder.h"

namespace skein::train {
namespace {

const data::PromptSource& prompts_of(const data::RunSamples& samples) {
  const auto* prompts = dynamic_cast<const data::PromptSource*>(samples.train.source.get());
  SKEIN_CHECK(prompts != nullptr, "an online run reads prompts");
  return *prompts;
}

CompletionLog::Options log_options(Session& run) {
  if (!run.world.is_first()) return {};
  return {.file = run.output / kCompletionsName,
          .fence = run.world.fence,
          .show = [&run](int64_t step, const std::string& text) {
            run.metrics.show_text(step, "completions", text);
          }};
}

// Evaluations are of rewards, whose names the judge knows.
void check_best_metric(const config::RunConfig& config, const std::vector<std::string>& rewards) {
  const auto known = names_of_numbers(rewards, /*generations=*/1);
  const auto& asked = config.eval.metric_for_best_model;
  if (std::ranges::count(known, asked) > 0) return;
  throw UserError(fmt::format("metric_for_best_model is {}; evaluations of stage: {} have {}{}",
                              asked, config::to_text(config.stage), fmt::join(known, ", "),
                              config::did_you_mean(asked, known)));
}

void announce(const OnlineRun& online, const std::vector<std::string>& rewards) {
  const auto& run = online.run;
  if (!run.world.is_first()) return;
  log_info("{}", online.plan.line());
  log_info("rewards: {}", fmt::join(rewards, ", "));
  const auto& program = run.config.reward.reward_program;
  if (!program.empty())
    log_info("reward_program: {}", shown(fmt::format("{}", fmt::join(program, " "))));
}

}  // namespace

OnlineRun::OnlineRun(Session& session)
    : run(session),
      plan(plan::rollout_plan(session.config, session.batches)),
      prompts(prompts_of(session.samples)),
      codec(text::open_codec(session.config.model)),
      critic(build_critic(session)),
      sampler(session, *codec),
      replies(session, sampler),
      judge(session),
      maker(session, critic.get()),
      completions(log_options(session)) {
  if (critic) run.state.add(*critic->state);
  run.state.keep({.ask = [this] { return maker.state(); },
                  .give = [this](const auto& numbers) { maker.restore(numbers); }});
}

std::optional<Verdict> OnlineRun::judge_all(const Prompts& prompts_of_step,
                                            std::vector<Sampled>& samples,
                                            const PolicySampler::Wish& wish) {
  Judge::GoOn go_on;
  if (replies.max_turns() > 1) {
    go_on = [&](std::span<const Reply> given) {
      return replies.go_on(prompts_of_step, samples, given, wish);
    };
  }
  return judge.judge(prompts_of_step, samples, go_on);
}

Deal OnlineRun::deal_of(int64_t count) const {
  return Deal({.completions = count * plan.generations,
               .mini_batches = plan.mini_batches,
               .per_device = run.batches.per_device,
               .accumulation = run.batches.accumulation,
               .rank = run.world.group.rank(),
               .size = run.world.group.size()});
}

int64_t begin(OnlineRun& online) {
  auto& run = online.run;
  const auto rewards = [&] {
    const board::HostWork work("starting the rewards");
    return online.judge.names();
  }();
  check_best_metric(run.config, rewards);
  if (auto* critic = online.critic.get();
      critic != nullptr && (!run.beginning.checkpoint || critic->state->is_adapter())) {
    load_critic(*critic, run.world);
  }
  const int64_t step = begin(run);
  announce(online, rewards);
  if (run.world.leads_output()) {
    record_files(run.output, start_token(run.output, run.world), {run.output / kCompletionsName});
  }
  online.completions.keep_until(step);
  return step;
}

}  // namespace skein::train
