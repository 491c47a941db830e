// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// With which choices does a run fit into memory? What `auto` becomes, and what to type where a run
// does not fit, follow from the same bytes that `skein plan` shows.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/plan/cost/memory_estimate.h"
#include "skein/plan/families/architecture.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/rules.h"

namespace skein::plan {

// What the memory of ranks is.
struct Available {
  uint64_t host = 0;
  uint64_t gpu = 0;  // of the smallest; 0: unknown
};

struct Machine {
  int ranks = 1;
  int local_ranks = 1;  // of them, here
  Place place;
  Available memory;
  // False: of a plan for another machine. What is wrong with this one's disks is no refusal then.
  bool is_here = true;
  std::string_view host_note = {};  // told where the host's memory decides
};

// What may change without changing what is learned: the global batch stays.
struct Choice {
  int stage = 0;  // of sharding
  int64_t per_device = 1;
  int64_t accumulation = 1;
  bool recompute = false;  // gradient_checkpointing
  optim::Offload offload{};

  bool operator==(const Choice&) const = default;
};

// Of one rank.
struct RankBytes {
  FlatBytes flat;
  Activations activations;
  int64_t reference = 0;  // weights of a frozen model beside it
  int64_t reward = 0;     // of a reward model
  int64_t critic = 0;     // what a critic holds: weights, gradients, states
  int64_t cache = 0;      // keys and values while answers are written: asked, or of one answer
  int64_t peak = 0;       // of a step, on the device; on a CPU with what is offloaded
  int64_t margin = 0;     // beside it: libraries and their workspaces, holes between tensors
  int64_t host = 0;       // of a GPU's rank, where it offloads

  int64_t needed() const { return peak + margin; }
};

// What learns beside a policy.
struct RunCritic {
  Shapes shapes;
  Dimensions dimensions;
};

// The memory of a run on a machine, asked for one choice after the other.
class RunMemory {
 public:
  // `tokens`: of the longest row.
  RunMemory(const config::RunConfig& config, const HfConfig& model, const Machine& machine,
            int64_t tokens);

  const Shapes& shapes() const { return shapes_; }
  const Dimensions& dimensions() const { return dimensions_; }
  RankBytes needs(const Choice& choice) const;
  // The same model and machine under another configuration.
  RunMemory with(const config::RunConfig& config) const {
    return {config, model_, machine_, question_.tokens};
  }
  const config::RunConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }  // of the weights in forward
  // Unknown memory fits everything.
  bool fits(const RankBytes& bytes) const;
  bool fits(const Choice& choice) const { return fits(needs(choice)); }
  bool fits_host(const RankBytes& bytes) const;  // what a GPU's rank offloads
  // "a rank needs about 21.3 GiB, and the GPU has 15.0 GiB".
  std::string comparison(const RankBytes& bytes) const;
  // "; offload has 23.5 GiB of host memory (…)": where a plan takes another machine's for it.
  std::string host_limit() const;
  int64_t ranks() const { return machine_.ranks; }
  bool on_gpus() const { return machine_.place.on_gpus(); }

 private:
  void add_online(const Choice& choice, const MemoryQuestion& question, RankBytes& bytes) const;
  int64_t cache_bytes() const;
  bool fits_device(const RankBytes& bytes) const;

  config::RunConfig config_;
  HfConfig model_;
  Shapes shapes_;
  std::optional<Shapes> reference_;  // of a frozen model beside it
  std::optional<Shapes> reward_;     // the same of a reward model
  std::optional<RunCritic> critic_;
  Dimensions dimensions_;
  Machine machine_;
  MemoryQuestion question_;  // without the choice
  DType dtype_;
};

Choice asked_choice(const config::RunConfig& config, const config::BatchPlan& batches);

// What to type where `asked` does not fit: the first of a smaller micro-batch with the same global
// batch, gradient_checkpointing, another stage, and on GPUs offload that does, each alone; else all
// together. Where the host is too small for what is offloaded, less of it or a disk comes first.
// LoRA tries quantization_bit=4 before several changes; where nothing else helps, states of fewer
// bytes are named if they do, and what else would.
std::string smallest_change(const RunMemory& memory, const Choice& asked);
// What is left to a run that no choice makes fit.
std::string beyond_choices(const Shapes& shapes);

// One change each, in the order in which they are tried: smaller micro-batches with the same global
// batch, gradient_checkpointing, other stages, offload. They need not need less.
std::vector<Choice> smaller_choices(const RunMemory& memory, const Choice& asked);

// The keys in which `to` differs, as they are typed: "key=value key=value".
std::string typed_keys(const Choice& from, const Choice& to);

// distributed_strategy: auto and auto_find_batch_size, decided. Of the strategies that fit, by the
// number of parameters that train: ddp below 1B, zero2 to 7B, zero3 above; where that does not fit,
// the next one that does; on GPUs then offload, of as few states as need be. The micro-batch is the
// largest divisor of a rank's rows that fits, no larger than a given per_device_train_batch_size.
// Rows count as long as block_size allows. Changes `resolved`; returns why, a line for each key
// that was open. Throws UserError where the model cannot be read.
std::vector<std::string> settle_autos(config::Resolved& resolved, const Machine& machine);

// Before any rank of a node starts: is there room for what its ranks offload? Throws UserError for
// host memory that they would lock, IoError for the disk of nvme_path.
void check_offload_room(const config::Resolved& resolved, const Machine& machine);

}  // namespace skein::plan
