// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The words of what a policy is taught by.

#include "skein/config/syntax/choices.h"
#include "skein/config/syntax/values.h"

namespace skein::config {

Spellings<PolicyLoss> spellings_of(PolicyLoss) {
  using enum PolicyLoss;
  static constexpr Spelling<PolicyLoss> kKnown[] = {{"grpo", kGrpo},
                                                    {"bnpo", kBnpo},
                                                    {"dr_grpo", kDrGrpo},
                                                    {"dapo", kDapo},
                                                    {"cispo", kCispo},
                                                    {"ppo", kPpo},
                                                    {"seq_mean_token_sum", kSequenceSum},
                                                    {"luspo", kSequenceSum},
                                                    // VERL's.
                                                    {"token-mean", kPpo},
                                                    {"seq-mean-token-mean", kGrpo},
                                                    {"seq-mean-token-sum", kSequenceSum},
                                                    {"seq-mean-token-sum-norm", kDrGrpo}};
  static constexpr const char* kNotBuilt[] = {"vespo", "sapo"};
  return {kKnown, kNotBuilt};
}
Spellings<RatioLevel> spellings_of(RatioLevel) {
  static constexpr Spelling<RatioLevel> kKnown[] = {{"token", RatioLevel::kToken},
                                                    {"sequence", RatioLevel::kSequence},
                                                    {"sequence_sum", RatioLevel::kSequenceSum}};
  static constexpr const char* kNotBuilt[] = {"sequence_token"};
  return {kKnown, kNotBuilt};
}
Spellings<KlEstimator> spellings_of(KlEstimator) {
  using enum KlEstimator;
  static constexpr Spelling<KlEstimator> kKnown[] = {
      {"k1", kK1}, {"k2", kK2}, {"k3", kK3}, {"kl", kK1}, {"mse", kK2}, {"low_var_kl", kK3}};
  static constexpr const char* kNotBuilt[] = {"abs", "full"};
  return {kKnown, kNotBuilt};
}
Spellings<AdvantageEstimator> spellings_of(AdvantageEstimator) {
  using enum AdvantageEstimator;
  static constexpr Spelling<AdvantageEstimator> kKnown[] = {
      {"group", kGroup},
      {"rloo", kLeaveOneOut},
      {"reinforce_plus_plus", kReinforcePlusPlus},
      {"reinforce_plus_plus_baseline", kReinforcePlusPlusBaseline},
      {"gae", kGae},
      {"grpo", kGroup},
      {"group_norm", kGroup},
      {"reinforce++", kReinforcePlusPlus},
      {"reinforce", kReinforcePlusPlus},
      {"reinforce_baseline", kReinforcePlusPlusBaseline}};
  static constexpr const char* kNotBuilt[] = {"remax", "opo", "gpg", "grpo_passk"};
  return {kKnown, kNotBuilt};
}
Spellings<ScaleRewards> spellings_of(ScaleRewards) {
  using enum ScaleRewards;
  static constexpr Spelling<ScaleRewards> kKnown[] = {
      {"group", kGroup}, {"batch", kBatch}, {"none", kNone}, {"true", kGroup}, {"false", kNone}};
  return {kKnown, {}};
}
Spellings<RolloutCorrection> spellings_of(RolloutCorrection) {
  using enum RolloutCorrection;
  static constexpr Spelling<RolloutCorrection> kKnown[] = {{"none", kNone},
                                                           {"truncate", kTruncate},
                                                           {"mask", kMask},
                                                           {"token_truncate", kTruncate},
                                                           {"token_mask", kMask}};
  static constexpr const char* kNotBuilt[] = {"sequence_truncate", "sequence_mask"};
  return {kKnown, kNotBuilt};
}
Spellings<KlPlace> spellings_of(KlPlace) {
  static constexpr Spelling<KlPlace> kKnown[] = {{"reward", KlPlace::kReward},
                                                 {"loss", KlPlace::kLoss}};
  return {kKnown, {}};
}
Spellings<LongPrompts> spellings_of(LongPrompts) {
  using enum LongPrompts;
  static constexpr Spelling<LongPrompts> kKnown[] = {{"drop", kDrop},
                                                     {"truncate_left", kTruncateLeft},
                                                     {"error", kError},
                                                     {"left", kTruncateLeft}};
  static constexpr const char* kNotBuilt[] = {"right", "middle"};
  return {kKnown, kNotBuilt};
}

}  // namespace skein::config
