// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is whole on every rank, what is this rank's shard, and when does it travel?
//
// A stage is a value: Sharded asks it, and nothing asks for its name. DDP and ZeRO 1-3 are four of
// them; docs/add_a_strategy.md defines others.

#include <array>

#include "skein/core/error.h"

namespace skein::parallel {

enum class Kept { kWhole, kShard };

struct Stage {
  Kept states = Kept::kWhole;
  Kept gradients = Kept::kWhole;   // of a finished reduction
  Kept parameters = Kept::kWhole;  // between steps

  // Gradients of blocks: each micro-batch's at once, into the shard that the step adds up; else
  // they add up whole, and travel with the last one. Root units' always travel with the last.
  bool reduces_every_micro_batch = false;
  // Sharded parameters of blocks: whole from the first micro-batch to the last; else around each
  // use. Root units' are always whole for a step.
  bool gathers_once_a_step = false;

  constexpr bool shards_states() const { return states == Kept::kShard; }
  constexpr bool shards_gradients() const { return gradients == Kept::kShard; }
  constexpr bool shards_parameters() const { return parameters == Kept::kShard; }
};

inline constexpr Stage kDdp;
inline constexpr Stage kZero1{.states = Kept::kShard};
inline constexpr Stage kZero2{
    .states = Kept::kShard, .gradients = Kept::kShard, .reduces_every_micro_batch = true};
inline constexpr Stage kZero3{.states = Kept::kShard,
                              .gradients = Kept::kShard,
                              .parameters = Kept::kShard,
                              .reduces_every_micro_batch = true};
inline constexpr std::array kStages{kDdp, kZero1, kZero2, kZero3};  // by ZeRO's number

// Not every value can be carried out: an optimizer with whole states needs whole gradients and
// parameters, and what adds up over micro-batches after travelling needs a shard to add up in.
inline void check(const Stage& stage) {
  const bool owns_all = !stage.shards_states();
  SKEIN_CHECK(!owns_all || (!stage.shards_gradients() && !stage.shards_parameters()),
              "a stage that shards gradients or parameters must shard the states too");
  SKEIN_CHECK(!stage.reduces_every_micro_batch || stage.shards_gradients(),
              "a stage that reduces every micro-batch must shard the gradients");
  SKEIN_CHECK(!stage.gathers_once_a_step || stage.shards_parameters(),
              "a stage that gathers once a step must shard the parameters");
}

}  // namespace skein::parallel
