// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "skein/config/online_values.h"
#include "skein/config/syntax/values.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/data/rows/row_cache.h"
#include "skein/plan/disk_space.h"
#include "skein/plan/finetune.h"
#include "skein/plan/online.h"
#include "skein/plan/preferences.h"
#include "skein/plan/run_model.h"
#include "skein/plan/steps/rollout_plan.h"

namespace skein::plan {
namespace {

// A CUDA context, the workspaces of cuBLAS and NCCL; and a thirty-second of the tensors, that the
// allocator cannot use. On CPUs a rank's program and its libraries.
constexpr int64_t kGpuOverhead = int64_t{1} << 30, kCpuOverhead = int64_t{256} << 20;
// In host memory, of a rank on a GPU.
constexpr int64_t kHostOverhead = int64_t{2} << 30;
constexpr int64_t kHoles = 32;

// By the number of parameters that train, as guides for DeepSpeed choose.
constexpr int64_t kFewParameters = 1'000'000'000, kManyParameters = 7'000'000'000;

constexpr int64_t kLargestMicroBatch = 65536;

constexpr int kOffloadSteps = 8;  // of the share of the states, as it is tried

std::string shown(int64_t bytes) { return shown_bytes(static_cast<uint64_t>(bytes)); }

std::string strategy_word(int stage) { return config::to_text(strategy_of(stage)); }

Choice with_micro_batch(Choice choice, int64_t per_device) {
  const int64_t rows = choice.per_device * choice.accumulation;
  choice.per_device = per_device;
  choice.accumulation = rows / per_device;
  return choice;
}

// Those that divide the rows of a rank and update, the largest first.
std::vector<int64_t> micro_batches(const Choice& choice, int64_t largest) {
  const int64_t rows = choice.per_device * choice.accumulation;
  std::vector<int64_t> sizes;
  for (int64_t size = std::min({largest, rows, kLargestMicroBatch}); size >= 1; --size) {
    if (rows % size == 0) sizes.push_back(size);
  }
  return sizes;
}

const char* word_of(Medium medium) {
  return medium == Medium::kDevice ? "none" : medium == Medium::kDisk ? "nvme" : "cpu";
}

// What of `to` is another than in `from`, as it is typed.
std::string typed_offload(const optim::Offload& from, const optim::Offload& to) {
  std::string keys;
  const auto add = [&](const std::string& word) { keys += (keys.empty() ? "" : " ") + word; };
  // Shards that stay have taken the states along, whose key nobody has typed.
  const bool shards_stay = from.parameters != Medium::kDevice && to.parameters == Medium::kDevice;
  if (to.states != from.states || (shards_stay && to.any())) {
    add(fmt::format("offload_optimizer={}", word_of(to.states)));
  }
  if (to.ratio != from.ratio && to.any()) add(fmt::format("offload_ratio={:g}", to.ratio));
  if (to.parameters != from.parameters) {
    add(fmt::format("offload_param={}", word_of(to.parameters)));
  }
  return keys;
}

}  // namespace

std::string typed_keys(const Choice& from, const Choice& to) {
  std::string keys;
  const auto add = [&](const std::string& word) { keys += (keys.empty() ? "" : " ") + word; };
  if (to.per_device != from.per_device) {
    add(fmt::format("per_device_train_batch_size={} gradient_accumulation_steps={}", to.per_device,
                    to.accumulation));
  }
  if (to.recompute != from.recompute) add("gradient_checkpointing=true");
  if (to.stage != from.stage) add(fmt::format("distributed_strategy={}", strategy_word(to.stage)));
  if (to.offload != from.offload) add(typed_offload(from.offload, to.offload));
  return keys;
}

namespace {

// Of the optimizer's states ever more than now, then of everything; the last needs zero3.
std::vector<Choice> offloads(const Choice& asked, const RunMemory& memory) {
  std::vector<Choice> changes;
  if (!memory.on_gpus()) return changes;
  const auto& now = asked.offload;
  const auto medium = now.any() ? now.states : Medium::kPinnedHost;
  for (int step = 1; step <= kOffloadSteps; ++step) {
    const double ratio = step / double{kOffloadSteps};
    if (now.any() && ratio <= now.ratio) continue;
    changes.push_back(asked);
    changes.back().offload = {.states = medium, .ratio = ratio};
  }
  if (now.parameters != Medium::kDevice) return changes;
  changes.push_back(asked);
  changes.back().stage = 3;
  changes.back().offload = {.states = medium, .parameters = medium};
  return changes;
}

// Others than `stage`: those that divide more first. They need not need less: gathered units lie
// beside the shards, and without accumulation gradients only come when activations go.
std::vector<int> other_stages(int stage) {
  std::vector<int> others;
  for (int above = stage + 1; above <= 3; ++above) others.push_back(above);
  for (int below = stage - 1; below >= 0; --below) others.push_back(below);
  return others;
}

}  // namespace

std::vector<Choice> smaller_choices(const RunMemory& memory, const Choice& asked) {
  std::vector<Choice> changes;
  for (const auto size : micro_batches(asked, asked.per_device - 1)) {
    changes.push_back(with_micro_batch(asked, size));
  }
  if (!asked.recompute) {
    changes.push_back(asked);
    changes.back().recompute = true;
  }
  const bool divides = memory.ranks() > 1;
  for (const int stage : divides ? other_stages(asked.stage) : std::vector<int>()) {
    changes.push_back(asked);
    changes.back().stage = stage;
  }
  std::ranges::move(offloads(asked, memory), std::back_inserter(changes));
  return changes;
}

namespace {

// What would need less of the model itself, with a comma behind it.
const char* smaller_model(const Shapes& shapes) {
  const auto& parameters = shapes.parameters;
  if (shapes.trainable_numel() == shapes.numel()) {
    return "finetuning_type=lora, which trains adapters alone, ";
  }
  const bool lora = std::ranges::any_of(parameters, &ParameterShape::adapter);
  const bool packed =
      std::ranges::any_of(parameters, [](const auto& p) { return p.packed_bytes > 0; });
  return lora && !packed ? "quantization_bit=4, which holds frozen weights in 4 bits, " : "";
}

}  // namespace

namespace {

Shapes frozen(Shapes shapes) {
  for (auto& parameter : shapes.parameters) parameter.trainable = false;
  return shapes;
}

std::optional<Shapes> reference_shapes(const config::RunConfig& config, const HfConfig& model) {
  if (reference_of(config) != Reference::kCopy) return std::nullopt;
  return frozen(model.shapes());
}

std::optional<Shapes> reward_shapes(const config::RunConfig& config) {
  if (!has_reward_model(config)) return std::nullopt;
  return frozen(read_reward_model(config).shapes());
}

std::optional<RunCritic> critic_of(const config::RunConfig& config) {
  if (!config::has_critic(config)) return std::nullopt;
  const auto critic = critic_config(config);
  const auto model = read_run_model(critic);
  return RunCritic{.shapes = tuned_model(critic, model).shapes, .dimensions = model.dimensions()};
}

}  // namespace

RunMemory::RunMemory(const config::RunConfig& config, const HfConfig& model, const Machine& machine,
                     int64_t tokens)
    : config_(config),
      model_(model),
      shapes_(tuned_model(config, model).shapes),
      reference_(reference_shapes(config, model)),
      reward_(reward_shapes(config)),
      critic_(critic_of(config)),
      dimensions_(model.dimensions()),
      machine_(machine),
      dtype_(working_dtype(config.model.dtype, machine.place)) {
  const auto adapters = dtype_ == DType::kF64 ? DType::kF64 : DType::kF32;
  question_ = {.ranks = machine.ranks,
               .weight_bytes = static_cast<int64_t>(dtype_bytes(dtype_)),
               .state_bytes = state_bytes_each(config.optimizer, dtype_),
               .adapter_state_bytes = state_bytes_each(config.optimizer, adapters),
               .tokens = tokens,
               .adapter_dropout = config.finetune.lora_dropout > 0,
               .cuda = machine.place.on_gpus()};
  question_.offload_activations = config.model.offload_activations;
}

// Of one answer with its prompt, or what was asked for: more is taken where it is free.
int64_t RunMemory::cache_bytes() const {
  if (const auto asked = config_.rollout.rollout_cache_size; asked > 0) return asked;
  return plan::cache_bytes(dimensions_, question_.tokens, dtype_);
}

// Policy and critic are updated one after the other, and both are held; while answers are written
// there are neither activations nor gathered units of a backward pass.
void RunMemory::add_online(const Choice& choice, const MemoryQuestion& question,
                           RankBytes& bytes) const {
  auto beside = question;
  beside.stage = choice.stage >= 3 ? 3 : 0;
  beside.offload = {};
  if (reward_) bytes.reward = flat_bytes(*reward_, beside).peak();
  int64_t critic_peak = 0;
  const auto policy_held = bytes.flat.held();
  if (critic_) {
    const auto flat = flat_bytes(critic_->shapes, question);
    bytes.critic = flat.held();
    critic_peak =
        step_peak(flat, activation_bytes(critic_->shapes, critic_->dimensions, question), question);
  }
  bytes.cache = cache_bytes();
  const auto frozen = bytes.reward + bytes.reference;
  const auto while_writing = policy_held + bytes.critic + bytes.cache + frozen;
  bytes.peak = std::max({bytes.peak + bytes.reward + bytes.critic,
                         critic_peak + policy_held + frozen, while_writing});
}

RankBytes RunMemory::needs(const Choice& choice) const {
  auto question = question_;
  const bool wide = has_wide_gradients(config_.optimizer, {.accumulation = choice.accumulation});
  question.gradient_bytes = static_cast<int64_t>(dtype_bytes(gradient_dtype(dtype_, wide)));
  question.stage = choice.stage;
  question.micro_batches = choice.accumulation;
  question.rows = choice.per_device * data::answers_of(row_kind(config_.stage));
  question.recompute = choice.recompute;
  question.offload = choice.offload;
  RankBytes bytes{.flat = flat_bytes(shapes_, question),
                  .activations = activation_bytes(shapes_, dimensions_, question)};
  bytes.peak = step_peak(bytes.flat, bytes.activations, question);
  if (reference_) {
    auto beside = question;
    beside.stage = choice.stage >= 3 ? 3 : 0;  // as train/reference.h holds it
    beside.offload = {};
    bytes.reference = flat_bytes(*reference_, beside).peak();
    // One that is asked before the first step is gone by then.
    bytes.peak = config_.preference.precompute_ref_log_probs
                     ? std::max(bytes.peak, bytes.flat.held() + bytes.reference)
                     : bytes.peak + bytes.reference;
  }
  if (config::is_online(config_.stage)) add_online(choice, question, bytes);
  if (!question.cuda) bytes.peak += bytes.flat.host;
  const auto host = bytes.flat.host + bytes.activations.host;
  if (question.cuda && host > 0) bytes.host = host + kHostOverhead;
  bytes.margin = question.cuda ? kGpuOverhead + bytes.peak / kHoles : kCpuOverhead;
  return bytes;
}

bool RunMemory::fits_device(const RankBytes& bytes) const {
  const auto needed = static_cast<uint64_t>(bytes.needed());
  if (on_gpus()) return machine_.memory.gpu == 0 || needed <= machine_.memory.gpu;
  return needed * static_cast<uint64_t>(machine_.local_ranks) <= machine_.memory.host;
}

bool RunMemory::fits_host(const RankBytes& bytes) const {
  return static_cast<uint64_t>(bytes.host * machine_.local_ranks) <= machine_.memory.host;
}

bool RunMemory::fits(const RankBytes& bytes) const {
  return fits_device(bytes) && fits_host(bytes);
}

std::string RunMemory::comparison(const RankBytes& bytes) const {
  if (on_gpus() && !fits_host(bytes)) {
    return fmt::format(
        "what this machine's ranks offload needs about {} of its memory, and it has {}{}",
        shown(bytes.host * machine_.local_ranks), shown_bytes(machine_.memory.host),
        machine_.host_note);
  }
  if (on_gpus()) {
    const auto has = machine_.memory.gpu == 0
                         ? std::string("it is not known what the GPU has")
                         : fmt::format("the GPU has {}", shown_bytes(machine_.memory.gpu));
    return fmt::format("a rank needs about {}, and {}", shown(bytes.needed()), has);
  }
  return fmt::format("this machine's ranks together need about {}, and it has {}",
                     shown(bytes.needed() * machine_.local_ranks),
                     shown_bytes(machine_.memory.host));
}

std::string RunMemory::host_limit() const {
  if (!on_gpus() || machine_.host_note.empty()) return "";
  return fmt::format("; offload has {} of host memory{}", shown_bytes(machine_.memory.host),
                     machine_.host_note);
}

Choice asked_choice(const config::RunConfig& config, const config::BatchPlan& batches) {
  return {.stage = zero_stage(config.parallel.distributed_strategy),
          .per_device = batches.per_device,
          .accumulation = batches.accumulation,
          .recompute = config.model.gradient_checkpointing,
          .offload = offload_of(config.offload)};
}

namespace {

// Where the host has too little for what is offloaded: none of it, less of it, then a disk.
std::vector<Choice> other_places(const Choice& asked) {
  const auto& now = asked.offload;
  std::vector<Choice> changes;
  const auto add = [&](const optim::Offload& offload) {
    changes.push_back(asked);
    changes.back().offload = offload;
  };
  add({});
  if (now.parameters != Medium::kDevice) add({.states = now.states});
  for (int step = kOffloadSteps - 1; step > 0; --step) {
    const double ratio = step / double{kOffloadSteps};
    if (ratio < now.ratio) add({.states = now.states, .ratio = ratio});
  }
  if (now.uses_disk()) return changes;
  const bool shards = now.parameters != Medium::kDevice;
  add({.states = Medium::kDisk,
       .ratio = now.ratio,
       .parameters = shards ? Medium::kDisk : Medium::kDevice});
  return changes;
}

// One change each, in the order in which they are tried.
std::vector<Choice> single_changes(const RunMemory& memory, const Choice& from) {
  std::vector<Choice> changes;
  if (from.offload.any() && !memory.fits_host(memory.needs(from))) changes = other_places(from);
  std::ranges::move(smaller_choices(memory, from), std::back_inserter(changes));
  return changes;
}

std::string typed_change(const Choice& from, const Choice& to) {
  const bool needs_folder = to.offload.uses_disk() && !from.offload.uses_disk();
  return typed_keys(from, to) + (needs_folder ? " nvme_path=FOLDER" : "");
}

// Keys of the changes that together make `asked` fit; empty: none do.
std::string changes_together(const RunMemory& memory, const Choice& asked) {
  auto all = with_micro_batch(asked, 1);
  all.recompute = true;
  if (memory.fits(all)) return typed_change(asked, all);
  for (const auto& change : single_changes(memory, all)) {
    if (memory.fits(change)) return typed_change(asked, change);
  }
  return "";
}

// Another configuration that learns about the same from fewer bytes, and what to type for it.
struct Narrower {
  std::string keys;
  config::RunConfig config;
};

std::vector<Narrower> narrower_states(const RunMemory& memory) {
  std::vector<Narrower> list;
  const auto& now = memory.config();
  const bool may_8bit = now.optimizer.optim != config::OptimizerKind::kAdamW8bit;
  // It trains in bfloat16 alone.
  const bool may_pure = !now.optimizer.pure_bf16 && memory.dtype() == DType::kBF16;
  const auto add = [&](bool in_8bit, bool pure) {
    Narrower other{.keys = fmt::format("{}{}{}", in_8bit ? "optim=adamw_8bit" : "",
                                       in_8bit && pure ? " " : "", pure ? "pure_bf16=true" : ""),
                   .config = now};
    if (in_8bit) other.config.optimizer.optim = config::OptimizerKind::kAdamW8bit;
    if (pure) other.config.optimizer.pure_bf16 = true;
    list.push_back(std::move(other));
  };
  if (may_8bit && memory.dtype() != DType::kF64) add(true, false);
  if (may_pure) add(false, true);
  if (may_8bit && may_pure) add(true, true);
  return list;
}

// Beside adapters, frozen weights may lie in 4 bits.
std::optional<RunMemory> in_4_bits(const RunMemory& memory) try {
  auto config = memory.config();
  const bool lora = config.finetune.finetuning_type == config::FinetuningType::kLora;
  if (!lora || config.model.quantization_bit != config::QuantizationBit::kNone) return std::nullopt;
  config.model.quantization_bit = config::QuantizationBit::kFour;
  return memory.with(config);
} catch (const UserError&) {
  return std::nullopt;  // not every model can
}

std::string with_narrower_states(const RunMemory& memory, const Choice& asked) {
  for (const auto& [keys, config] : narrower_states(memory)) {
    const auto other = memory.with(config);
    if (other.fits(asked)) return keys;
    if (const auto more = changes_together(other, asked); !more.empty()) return keys + " " + more;
  }
  return "";
}

}  // namespace

std::string smallest_change(const RunMemory& memory, const Choice& asked) {
  for (const auto& change : single_changes(memory, asked)) {
    if (memory.fits(change)) return fmt::format("{} makes it fit", typed_change(asked, change));
  }
  const auto packed = in_4_bits(memory);
  if (packed && packed->fits(asked)) return "quantization_bit=4 makes it fit";
  if (const auto keys = changes_together(memory, asked); !keys.empty()) {
    return keys + " make it fit";
  }
  const auto packed_keys = packed ? changes_together(*packed, asked) : "";
  if (!packed_keys.empty()) return fmt::format("quantization_bit=4 {} make it fit", packed_keys);
  if (const auto keys = with_narrower_states(memory, asked); !keys.empty()) {
    return keys + " would make it fit: states of fewer bytes (docs/precision.md)" +
           memory.host_limit();
  }
  return "no smaller micro-batch, gradient_checkpointing, stage or offload makes it fit: " +
         beyond_choices(memory.shapes()) + memory.host_limit();
}

std::string beyond_choices(const Shapes& shapes) {
  return fmt::format(
      "{}shorter rows (block_size), more ranks with distributed_strategy=zero3, or more memory",
      smaller_model(shapes));
}

namespace {

// Strategies to try, in order: `asked` with other stages and offloads. One rank has nothing to
// divide, and nodes with folders of their own must each hold everything.
std::vector<Choice> strategies_to_try(const config::RunConfig& config, const RunMemory& memory,
                                      Choice asked) {
  if (config.parallel.distributed_strategy != config::Strategy::kAuto) return {asked};
  const bool divides = memory.ranks() > 1 && !config.checkpoint.save_on_each_node;
  const int64_t trainable = memory.shapes().trainable_numel();
  const int preferred = trainable < kFewParameters ? 0 : trainable <= kManyParameters ? 2 : 3;
  std::vector<Choice> list;
  const auto try_stage = [&](int stage) {
    list.push_back(asked);
    list.back().stage = stage;
  };
  // Only zero3 has shards of parameters.
  const bool shards = asked.offload.parameters != Medium::kDevice;
  if (shards || !divides) {
    try_stage(shards ? 3 : 0);
  } else {
    try_stage(preferred);
    for (const int stage : other_stages(preferred)) try_stage(stage);
  }
  asked.stage = divides ? 3 : 0;
  // What was asked for stays as it is.
  auto further = asked.offload.any() ? std::vector<Choice>() : offloads(asked, memory);
  if (config.checkpoint.save_on_each_node && !further.empty()) further.pop_back();
  std::ranges::move(further, std::back_inserter(list));
  return list;
}

struct Decision {
  Choice choice;
  size_t tried = 0;  // which of the strategies
  bool fits = false;
};

// The first strategy with the largest micro-batch that fits; where none does, what needs least.
Decision decide(const RunMemory& memory, const std::vector<Choice>& strategies,
                const std::vector<int64_t>& sizes) {
  Decision least;
  int64_t least_bytes = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < strategies.size(); ++i) {
    for (const auto size : sizes) {
      const auto choice = with_micro_batch(strategies[i], size);
      const auto bytes = memory.needs(choice);
      if (memory.fits(bytes)) return {choice, i, true};
      const auto all = bytes.needed() + bytes.host;
      if (all < least_bytes) least = {choice, i, false};
      least_bytes = std::min(least_bytes, all);
    }
  }
  return least;
}

std::string strategy_text(const Choice& choice) {
  auto text = strategy_word(choice.stage);
  if (choice.offload.any()) text += " with " + typed_offload({}, choice.offload);
  return text;
}

std::string why_strategy(const RunMemory& memory, const config::RunConfig& config,
                         const Decision& decision, const std::vector<Choice>& tried) {
  const auto& choice = decision.choice;
  const auto said = fmt::format("distributed_strategy: auto is {}", strategy_text(choice));
  const auto bytes = memory.comparison(memory.needs(choice));
  const bool first = decision.tried == 0;
  if (!decision.fits) {
    return fmt::format("{}, which needs least; yet {}: {}", said, bytes,
                       smallest_change(memory, choice));
  }
  if (first && memory.ranks() == 1) return said + ": one rank has nothing to divide";
  if (first && config.checkpoint.save_on_each_node) {
    return said + ": save_on_each_node needs all state on every node";
  }
  if (!first) {
    // The nearest that does not fit: the same stage with less offload, else what was tried before.
    auto before = with_micro_batch(tried[decision.tried - 1], choice.per_device);
    if (choice.offload.any() && !before.offload.any()) before.stage = choice.stage;
    return fmt::format("{}: {}; {} would need {}", said, bytes, strategy_text(before),
                       shown(memory.needs(before).needed()));
  }
  if (choice.offload.parameters != Medium::kDevice) {
    return fmt::format("{}: offload_param is for its shards; {}", said, bytes);
  }
  constexpr const char* kRanges[] = {"below 1B: ddp", "", "1B to 7B: zero2", "above 7B: zero3"};
  return fmt::format("{}: {} parameters train ({}), {}", said,
                     shown_count(memory.shapes().trainable_numel()), kRanges[choice.stage], bytes);
}

std::string why_batch(const RunMemory& memory, const Decision& decision,
                      const std::vector<int64_t>& sizes) {
  const auto& choice = decision.choice;
  auto said = fmt::format(
      "per_device_train_batch_size: auto is {} x {} accumulation, the same {} rows of a rank",
      choice.per_device, choice.accumulation, choice.per_device * choice.accumulation);
  if (!decision.fits) return said + "; nothing larger fits, nor does this";
  const auto place = std::ranges::find(sizes, choice.per_device);
  if (place == sizes.begin()) {
    return said + (choice.accumulation == 1
                       ? ": all at once fits; give a larger global_batch_size for more"
                       : ": it fits, and nothing larger was asked for");
  }
  const auto larger = with_micro_batch(choice, *std::ranges::prev(place));
  return fmt::format("{}: {} would need {}", said, larger.per_device,
                     shown(memory.needs(larger).needed()));
}

void put(config::Resolved& resolved, const char* key, std::optional<int64_t>& member,
         int64_t value) {
  member = value;
  auto origin = resolved.origin_of("auto_find_batch_size");
  origin.spelling = "auto_find_batch_size";
  resolved.origins[key] = origin;
}

// Where nobody has asked for any.
void put_offload(config::Resolved& resolved, const optim::Offload& offload) {
  auto& config = resolved.config.offload;
  if (!offload.any() || offload_of(config).any()) return;
  config.offload_optimizer = config::Offload::kCpu;
  config.offload_ratio = offload.ratio;
  if (offload.parameters != Medium::kDevice) config.offload_param = config::Offload::kCpu;
  auto origin = resolved.origin_of("distributed_strategy");
  origin.spelling = "distributed_strategy";
  for (const char* key : {"offload_optimizer", "offload_ratio", "offload_param"}) {
    resolved.origins[key] = origin;
  }
}

}  // namespace

namespace {

// steps_per_generation counts micro-batches, whose number may change now: the updates stay.
void keep_mini_batches(config::Resolved& resolved, int ranks) {
  auto& policy = resolved.config.policy;
  if (!config::is_online(resolved.config.stage) || !policy.steps_per_generation) return;
  policy.num_mini_batches =
      rollout_plan(resolved.config, config::plan_batches(resolved, ranks)).mini_batches;
  policy.steps_per_generation.reset();
}

}  // namespace

std::vector<std::string> settle_autos(config::Resolved& resolved, const Machine& machine) {
  auto& config = resolved.config;
  auto& batch = config.batch;
  const bool open_strategy = config.parallel.distributed_strategy == config::Strategy::kAuto;
  if (!open_strategy && !batch.auto_find_batch_size) return {};
  if (config.model.model_name_or_path.empty()) return {};
  keep_mini_batches(resolved, machine.ranks);
  const RunMemory memory(config, read_run_model(config), machine, config.data.block_size);
  const auto asked = asked_choice(config, config::plan_batches(resolved, machine.ranks));
  const auto strategies = strategies_to_try(config, memory, asked);
  std::vector<int64_t> sizes = {asked.per_device};
  if (batch.auto_find_batch_size) {
    const bool given = batch.per_device_train_batch_size.has_value();
    sizes = micro_batches(asked, given ? asked.per_device : kLargestMicroBatch);
  }
  const auto decision = decide(memory, strategies, sizes);
  std::vector<std::string> reasons;
  if (open_strategy) {
    config.parallel.distributed_strategy = strategy_of(decision.choice.stage);
    put_offload(resolved, decision.choice.offload);
    reasons.push_back(why_strategy(memory, config, decision, strategies));
  }
  if (batch.auto_find_batch_size) {
    batch.auto_find_batch_size = false;
    put(resolved, "per_device_train_batch_size", batch.per_device_train_batch_size,
        decision.choice.per_device);
    put(resolved, "gradient_accumulation_steps", batch.gradient_accumulation_steps,
        decision.choice.accumulation);
    reasons.push_back(why_batch(memory, decision, sizes));
  }
  return reasons;
}

void check_offload_room(const config::Resolved& resolved, const Machine& machine) {
  const auto& config = resolved.config;
  const auto offload = offload_of(config.offload);
  if (!offload.any() && offload.parameters == Medium::kDevice) return;
  const RunMemory memory(config, read_run_model(config), machine, config.data.block_size);
  const auto asked = asked_choice(config, config::plan_batches(resolved, machine.ranks));
  const auto bytes = memory.needs(asked);
  if (!memory.fits_host(bytes)) {
    throw UserError(
        fmt::format("{}: {}", memory.comparison(bytes), smallest_change(memory, asked)));
  }
  // Every array there begins with a block of its own.
  const auto arrays = std::ssize(memory.shapes().units) * 2 * optim::kMostDiskArrays;
  const auto each =
      bytes.flat.disk == 0 ? 0 : bytes.flat.disk + arrays * optim::DiskOptions{}.block_bytes;
  const auto on_disk = static_cast<uint64_t>(each * machine.local_ranks);
  const auto free = free_space(config.offload.nvme_path);
  if (on_disk == 0 || !free || on_disk <= *free) return;
  throw IoError(fmt::format(
      "the disk of nvme_path is too small: what this machine's ranks offload needs {} there, and "
      "{} are free in {}; free some, name another folder, or give offload_optimizer=cpu",
      shown_bytes(on_disk), shown_bytes(*free), skein::shown(config.offload.nvme_path)));
}

}  // namespace skein::plan
