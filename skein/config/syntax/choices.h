// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The values of keys that name one of a few ways. Their words are in values.cpp
// and policy_words.cpp.

namespace skein::config {

enum class Device { kAuto, kCuda, kCpu };
enum class Strategy { kAuto, kDdp, kZero1, kZero2, kZero3 };
enum class Schedule {
  kConstant,
  kConstantWithWarmup,
  kLinear,
  kCosine,
  kCosineWithRestarts,
  kPolynomial,
  kInverseSqrt,
  kCosineWithMinLr,
  kWarmupStableDecay,
  kNanoGpt,
  // DeepSpeed's.
  kWarmupLr,
  kWarmupDecayLr,
  kWarmupCosineLr,
  kOneCycle,
  kLrRangeTest,
};
// How a warm-up rises. Auto: as the schedule's own library does when nothing is said.
enum class WarmupCurve { kAuto, kLinear, kLog, kCosine, kOneMinusSqrt };
// How warmup_stable_decay falls.
enum class Curve { kLinear, kCosine, kOneMinusSqrt };
// The DeepSpeed whose defaults and formulas count where its versions differ.
enum class DsCompat { k0_16, k0_19 };
// Whose rule moves the loss scale of float16.
enum class LossScaleRule { kPyTorch, kDeepSpeed };
// Where optimizer states or parameters lie between their uses.
enum class Offload { kNone, kCpu, kNvme };
// Bits of frozen linear weights; none: all of dtype.
enum class QuantizationBit { kNone, kFour };
// What turns gradients into updates.
enum class OptimizerKind { kAdamW, kAdamW8bit };
// What the learning rate is multiplied by when the batch grows.
enum class LrScaling { kNone, kLinear, kSqrt };
enum class NanPolicy { kStop, kSkip, kRollback };
// Of training; `stage` in a configuration.
enum class TrainingStage { kPretrain, kSft, kReward, kDpo, kKto, kPpo, kGrpo, kRloo };
// Those whose data is made while training: the model answers prompts, and answers get rewards.
constexpr bool is_online(TrainingStage stage) {
  return stage == TrainingStage::kPpo || stage == TrainingStage::kGrpo ||
         stage == TrainingStage::kRloo;
}
// Which weights train.
enum class FinetuningType { kFull, kFreeze, kLora };
// What becomes of a row that is longer than cutoff_len.
enum class ExcessLength { kTruncate, kDrop, kError };
// What becomes of a pair whose chosen and rejected answers are the same.
enum class EqualPairs { kDrop, kKeep, kError };
// How answers that people have judged become a loss: formulas in algorithms/preference_losses.h,
// and of the last two, which take answers judged alone, in algorithms/feedback.h.
enum class PreferenceLoss {
  kSigmoid,
  kHinge,
  kIpo,
  kRobust,
  kExoPair,
  kNcaPair,
  kSppoHard,
  kApoZero,
  kApoDown,
  kDiscopop,
  kSigmoidNorm,
  kSimpo,
  kOrpo,
  kSft,
  kKto,
  kApoZeroUnpaired
};
// How far a policy is from its reference.
enum class Divergence { kReverseKl, kForwardKl, kJensenShannon, kAlpha };
// How the tokens of sampled completions become a loss: formulas in algorithms/policy_losses.h.
enum class PolicyLoss { kGrpo, kBnpo, kDrGrpo, kDapo, kCispo, kPpo, kSequenceSum };
// What a policy's ratio to its older self is one of: each token, a whole completion as the
// geometric mean of its tokens' ratios, or their product.
enum class RatioLevel { kToken, kSequence, kSequenceSum };
// What estimates KL(policy, reference) from a sampled token: log-ratios r as r, r²/2 or
// exp(-r) - 1 + r.
enum class KlEstimator { kK1, kK2, kK3 };
// What rewards become advantages by, and what those of a group are divided by: formulas in
// algorithms/advantages.h.
enum class AdvantageEstimator {
  kGroup,
  kLeaveOneOut,
  kReinforcePlusPlus,
  kReinforcePlusPlusBaseline,
  kGae
};
enum class ScaleRewards { kGroup, kBatch, kNone };
// What is done about tokens that the sampler found more or less likely than the training pass.
enum class RolloutCorrection { kNone, kTruncate, kMask };
// Where the distance from the reference counts: in the rewards of tokens, or beside the loss.
enum class KlPlace { kReward, kLoss };
// What becomes of a prompt that is longer than max_prompt_length.
enum class LongPrompts { kDrop, kTruncateLeft, kError };
// What to do when per device x accumulation x ranks is not the global batch.
enum class BatchConflict { kError, kKeepMicro, kKeepGlobal };
// What to do with a line that is not UTF-8 or not JSON.
enum class BadLines { kStop, kSkip };
enum class EvalStrategy { kNo, kSteps, kEpoch };
enum class SaveStrategy { kNo, kSteps, kEpoch };
// Is a greater metric_for_best_model better? Auto: its name tells.
enum class GreaterIsBetter { kAuto, kYes, kNo };

}  // namespace skein::config
