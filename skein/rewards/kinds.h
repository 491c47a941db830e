// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The built-in rewards, for reward.cpp alone, which knows their names and parameters.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "skein/rewards/answer.h"
#include "skein/rewards/arguments.h"
#include "skein/rewards/reward.h"
#include "skein/rewards/row.h"

namespace skein::rewards {

// One that looks at each completion by itself.
class SingleReward : public Reward {
 public:
  explicit SingleReward(std::string name) : name_(std::move(name)) {}

  const std::string& name() const final { return name_; }
  std::vector<std::optional<double>> score(std::span<const Completion> completions) final {
    std::vector<std::optional<double>> scores;
    scores.reserve(completions.size());
    for (const auto& completion : completions) scores.push_back(judge(completion));
    return scores;
  }

 protected:
  virtual std::optional<double> judge(const Completion& completion) = 0;
  const nlohmann::json& columns(const Completion& completion) { return rows_.columns(completion); }

 private:
  std::string name_;
  RowReader rows_;
};

using RewardPointer = std::unique_ptr<Reward>;

// Parameters `column` and `as`. No form: whichever there is.
RewardPointer make_answer_reward(const std::string& name, std::optional<AnswerForm> form,
                                 const Arguments& arguments);
RewardPointer make_format_reward(const std::string& name);
RewardPointer make_think_format_reward(const std::string& name);
// The whole of what stands behind the colon.
RewardPointer make_regex_reward(const std::string& name, const std::string& pattern);
RewardPointer make_length_reward(const std::string& name, const Arguments& arguments);
RewardPointer make_overlong_reward(const std::string& name, const Arguments& arguments);
RewardPointer make_arithmetic_reward(const std::string& name, const Arguments& arguments);
RewardPointer make_json_reward(const std::string& name, const Arguments& arguments);

}  // namespace skein::rewards
