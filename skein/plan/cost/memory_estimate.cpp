// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/cost/memory_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "skein/adapter/tensor_names.h"
#include "skein/plan/cost/reach.h"

namespace skein::plan {
namespace {

// That of the flat layout: offsets and shards are multiples of it.
constexpr int64_t kAlignment = 128;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Bytes of flat memory, whole, of one unit or of several.
struct UnitBytes {
  int64_t weights = 0, gradients = 0, states = 0;
  int64_t upload = 0;     // the largest piece in which a rank's new weights go up
  int64_t disk_slot = 0;  // host memory of a slot through which states, or they and weights, pass
  int64_t largest_shard = 0;  // of weights that lie on a disk

  UnitBytes& operator+=(const UnitBytes& other) {
    weights += other.weights;
    gradients += other.gradients;
    states += other.states;
    upload = std::max(upload, other.upload);
    disk_slot = std::max(disk_slot, other.disk_slot);
    largest_shard = std::max(largest_shard, other.largest_shard);
    return *this;
  }
};

// Those of each unit. It has a buffer for what is frozen, one for that in 4 bits, one for what
// trains, and one for adapters where they are wider than the weights; each is padded to a multiple
// of alignment x ranks.
std::vector<UnitBytes> unit_bytes(const Shapes& shapes, const MemoryQuestion& question) {
  struct Buffers {
    int64_t packed = 0, frozen = 0, trainable = 0, adapters = 0;  // elements; packed: bytes
  };
  std::vector<Buffers> units(shapes.units.size());
  const bool narrow = question.weight_bytes < 4;
  for (const auto& parameter : shapes.parameters) {
    auto& unit = units[static_cast<size_t>(parameter.unit)];
    if (parameter.packed_bytes > 0) {
      unit.packed += round_up(parameter.packed_bytes, kAlignment);
      continue;
    }
    auto& buffer = parameter.adapter && narrow ? unit.adapters
                   : parameter.trainable       ? unit.trainable
                                               : unit.frozen;
    buffer += round_up(parameter.memory_numel(), kAlignment);
  }
  std::vector<UnitBytes> bytes;
  for (auto& [packed, frozen, trainable, adapters] : units) {
    for (auto* size : {&packed, &frozen, &trainable, &adapters}) {
      *size = round_up(*size, kAlignment * question.ranks);
    }
    const auto window = [&](int64_t elements) {
      const auto most = question.offload.states == Medium::kDisk ? optim::DiskOptions().window()
                                                                 : optim::kUploadWindow;
      return std::min(elements / (question.stage >= 1 ? question.ranks : 1), most);
    };
    const bool on_disk = question.offload.states == Medium::kDisk;
    const bool weights_on_disk =
        question.stage >= 3 && question.offload.parameters == Medium::kDisk;
    const auto own = [&](int64_t elements, int from_stage) {
      return elements / (question.stage >= from_stage ? question.ranks : 1);
    };
    const auto slot = [&](int64_t elements, double state_bytes, int64_t weight_bytes) {
      const double each = (on_disk ? state_bytes : 0) + (weights_on_disk ? weight_bytes : 0);
      return elements == 0 || each == 0
                 ? 0
                 : optim::disk_slot_bytes({}, own(elements, 1), each) + optim::kDiskAlignment;
    };
    int64_t piece = 0;
    for (const auto [elements, each] : {std::pair{packed, int64_t{1}},
                                        {frozen, question.weight_bytes},
                                        {trainable, question.weight_bytes},
                                        {adapters, int64_t{4}}}) {
      if (weights_on_disk) piece = std::max(piece, own(elements, 3) * each);
    }
    const double states = static_cast<double>(trainable) * question.state_bytes +
                          static_cast<double>(adapters) * question.adapter_state_bytes;
    bytes.push_back(
        {.weights = packed + (frozen + trainable) * question.weight_bytes + adapters * 4,
         .gradients = trainable * question.gradient_bytes + adapters * 4,
         .states = static_cast<int64_t>(states),
         .upload = std::max(window(trainable) * question.weight_bytes, window(adapters) * 4),
         .disk_slot = std::max(slot(trainable, question.state_bytes, question.weight_bytes),
                               slot(adapters, question.adapter_state_bytes, 4)),
         .largest_shard = piece});
  }
  return bytes;
}

// What comes and goes during a step at stages 2 and 3, followed through it: a block's backward runs
// while the block before it in backward is being reduced and the next one is being gathered.
class Transients {
 public:
  Transients(const Shapes& shapes, const std::vector<UnitBytes>& units,
             const MemoryQuestion& question)
      : question_(question) {
    for (size_t unit = 0; unit < units.size(); ++unit) {
      if (!shapes.units[unit].root) {
        blocks_.push_back(units[unit]);
      } else {
        (blocks_.empty() ? first_root_ : last_root_) += units[unit];
      }
    }
  }

  int64_t peak() {
    const int64_t count = question_.micro_batches;
    micro_batch(/*held=*/0, /*is_last=*/count == 1);
    // Roots' gradients stay whole until the last micro-batch sends them.
    const int64_t held = first_root_.gradients + last_root_.gradients;
    if (count > 2) micro_batch(held, /*is_last=*/false);
    if (count > 1) micro_batch(held, /*is_last=*/true);
    return peak_;
  }

 private:
  // `held`: root gradients of the micro-batches before. An untied head is sent first, while the
  // last block's gradient is made; each block's, while the next one's is; the first root unit last.
  void micro_batch(int64_t held, bool is_last) {
    const auto count = static_cast<int64_t>(blocks_.size());
    for (int64_t i = 0; i < count; ++i) see(weights(i) + weights(i + 1), held);  // forward
    const int64_t first = first_root_.gradients, last = last_root_.gradients;
    const bool tied = last_root_.weights == 0;
    int64_t roots = std::max(held, tied ? first : last);  // once the head is done
    see(weights(count - 1), roots);
    for (int64_t i = count - 1; i >= 0; --i) {
      see(weights(i) + weights(i - 1), roots + gradients(i) + gradients(i + 1));
      if (is_last && i == count - 1) roots -= last;
    }
    see(weights(0), std::max(roots, first + (is_last ? 0 : last)) + gradients(0));
  }

  UnitBytes block(int64_t index) const {
    const bool exists = index >= 0 && index < static_cast<int64_t>(blocks_.size());
    return exists ? blocks_[static_cast<size_t>(index)] : UnitBytes();
  }
  int64_t weights(int64_t index) const { return block(index).weights; }
  int64_t gradients(int64_t index) const { return block(index).gradients; }
  void see(int64_t gathered, int64_t gradients) {
    const int64_t whole = first_root_.weights + last_root_.weights + gathered;
    peak_ = std::max(peak_, (question_.stage >= 3 ? whole : 0) + gradients);
  }

  MemoryQuestion question_;
  std::vector<UnitBytes> blocks_;
  UnitBytes first_root_, last_root_;  // before and behind the blocks
  int64_t peak_ = 0;
};

}  // namespace

namespace {

std::vector<bool> units_off_device(const Shapes& shapes, const optim::Offload& offload) {
  std::vector<optim::UnitElements> units;
  for (const auto& unit : shapes.units) units.push_back({.root = unit.root});
  for (const auto& parameter : shapes.parameters) {
    auto& unit = units[static_cast<size_t>(parameter.unit)];
    if (parameter.trainable) unit.trainable += parameter.memory_numel();
  }
  return optim::units_off_device(units, offload.any() ? offload.ratio : 0);
}

int64_t& bytes_in(FlatBytes& bytes, Medium medium, int64_t FlatBytes::* on_device) {
  return medium == Medium::kDevice       ? bytes.*on_device
         : medium == Medium::kPinnedHost ? bytes.host
                                         : bytes.disk;
}

}  // namespace

namespace {

// A GPU's gradient stays until its copy to the host has ended, which is when the next one leaves;
// what earlier micro-batches left comes back to be added.
int64_t leaving_bytes(const std::vector<UnitBytes>& units, const std::vector<bool>& off,
                      const MemoryQuestion& question) {
  int64_t largest = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    if (off[i]) largest = std::max(largest, units[i].gradients);
  }
  const bool adds = question.stage >= 2 && question.micro_batches > 1;
  return largest + (adds ? largest / question.ranks : 0);
}

}  // namespace

FlatBytes flat_bytes(const Shapes& shapes, const MemoryQuestion& question) {
  const auto& [states, ratio, parameters] = question.offload;
  const auto share = [&](int64_t bytes, int from_stage) {
    return question.stage >= from_stage ? bytes / question.ranks : bytes;
  };
  auto units = unit_bytes(shapes, question);
  const auto off = units_off_device(shapes, question.offload);
  FlatBytes bytes;
  UnitBytes on_host;
  for (size_t i = 0; i < units.size(); ++i) {
    auto& unit = units[i];
    const auto kept = question.stage >= 3 ? parameters : Medium::kDevice;
    bytes_in(bytes, kept, &FlatBytes::weights) += share(unit.weights, 3);
    bytes_in(bytes, off[i] ? states : Medium::kDevice, &FlatBytes::states) += share(unit.states, 1);
    if (off[i]) {
      on_host += unit;
      bytes.host += share(unit.gradients, 1);
    }
    // Otherwise they stay from a micro-batch to the update.
    const bool passes = question.stage >= 2 || (off[i] && question.micro_batches == 1);
    if (!passes || !off[i]) bytes.gradients += share(unit.gradients, 2);
    if (!passes) unit.gradients = 0;
  }
  const bool uploads = question.cuda && (question.stage < 3 || parameters == Medium::kDevice);
  if (uploads) bytes.host += optim::kUploadSlots * on_host.upload;
  bytes.host += optim::kDiskSlots * on_host.disk_slot;
  int64_t largest = 0;
  for (const auto& unit : units) largest = std::max(largest, unit.largest_shard);
  if (largest > 0) {
    bytes.host +=
        optim::kDiskSlots * (optim::disk_piece_bytes({}, largest) + optim::kDiskAlignment);
  }
  bytes.transient = Transients(shapes, units, question).peak();
  if (question.cuda) bytes.transient += leaving_bytes(units, off, question);
  return bytes;
}

namespace {

// What of the head trains: its weight, or an adapter beside it.
struct HeadTraining {
  bool weight = false, dora = false;
  int64_t rank = 0;
};

std::string head_module(const Shapes& shapes) {
  const auto own = std::ranges::find(shapes.parameters, ModuleKind::kHead, &ParameterShape::kind);
  const auto name = shapes.tied_head                 ? shapes.tied_head->name
                    : own != shapes.parameters.end() ? own->name
                                                     : "";
  return name.substr(0, name.rfind('.'));
}

HeadTraining head_training(const Shapes& shapes) {
  HeadTraining head;
  const auto module = head_module(shapes);
  for (const auto& parameter : shapes.parameters) {
    if (parameter.padded_rows > 0 && parameter.trainable) head.weight = true;
    if (parameter.name == module + adapter::kLoraA) head.rank = parameter.shape[0];
    if (parameter.name == module + adapter::kMagnitude) head.dora = true;
  }
  return head;
}

// Beside the activations, while the head's forward makes its gradients.
int64_t head_bytes(const Dimensions& d, const MemoryQuestion& question, const HeadTraining& head) {
  const int64_t tokens = question.rows * question.tokens,
                vocabulary = padded_head_rows(d.vocabulary);
  const int64_t narrow = question.weight_bytes, wide = std::max<int64_t>(4, narrow);
  // One token of each document is scored; its gradient is as large as all hidden states.
  if (d.scores) return tokens * d.channels * narrow;
  const int64_t chunk_bytes = kLogitsBytes * (question.cuda ? kCudaChunkFactor : 1);
  const int64_t rows = std::clamp<int64_t>(chunk_bytes / (vocabulary * wide), 1, tokens);
  // The kernel works in the logits' place; the plain formula also holds the log-probabilities and
  // the gradient.
  const bool fused = question.cuda && narrow < 8;
  const int64_t d_weight = vocabulary * d.channels;
  int64_t logits = rows * vocabulary * (fused ? narrow : 2 * narrow + wide);
  if (d.capped_logits) logits += rows * vocabulary * narrow;
  if (head.dora) logits += rows * vocabulary * (narrow + (narrow < wide ? wide : 0));
  // CPUs multiply wide copies of 16-bit weights and gradients.
  if (!question.cuda && narrow < wide) logits += (d_weight + rows * vocabulary) * wide;
  // At the end the wide sum is rounded to the weights' 16 bits.
  const int64_t rounded = head.weight && narrow < wide ? d_weight * narrow : 0;
  const int64_t d_hidden = tokens * d.channels * narrow + 2 * rows * d.channels * wide;
  // B, padded, and its gradient; inner values and theirs.
  const int64_t adapter = 2 * head.rank * (vocabulary * wide + tokens * narrow);
  return std::max(logits, rounded) + (head.weight ? d_weight * wide : 0) + d_hidden + adapter;
}

// Gradients of the block that has most of them, as autograd gives them.
int64_t largest_block(const Shapes& shapes, const MemoryQuestion& question) {
  std::vector<int64_t> sizes(shapes.units.size(), 0);
  for (const auto& parameter : shapes.parameters) {
    const auto unit = static_cast<size_t>(parameter.unit);
    if (shapes.units[unit].root || !parameter.trainable) continue;
    const auto bytes =
        parameter.adapter ? std::max<int64_t>(4, question.weight_bytes) : question.weight_bytes;
    sizes[unit] += parameter.numel() * bytes;
  }
  return sizes.empty() ? 0 : *std::ranges::max_element(sizes);
}

// The values of one weight in 4 bits, while its product is made.
int64_t largest_unpacked(const Shapes& shapes, const MemoryQuestion& question) {
  int64_t largest = 0;
  for (const auto& parameter : shapes.parameters) {
    if (parameter.packed_bytes > 0) largest = std::max(largest, parameter.numel());
  }
  return largest * question.weight_bytes;
}

// What of a block's activations its linear layers keep, because they or adapters of them train.
struct KeptInputs {
  bool attention = false, mlp = false, down = false;
  // Beside them: inner values of all its adapters; of DoRA each output before it is scaled, and
  // each input as dropout has left it, in place of the input itself.
  int64_t adapters = 0;
  bool reached = false;  // by gradients
};

std::string adapted_module(const ParameterShape& adapter) {
  return adapter.name.substr(0, adapter.name.find(".lora_"));
}

bool is_magnitude(const ParameterShape& parameter) {
  return parameter.name.ends_with(adapter::kMagnitude);
}

std::set<std::string> dora_modules(const Shapes& shapes) {
  std::set<std::string> modules;
  for (const auto& parameter : shapes.parameters) {
    if (is_magnitude(parameter)) modules.insert(adapted_module(parameter));
  }
  return modules;
}

void keep_input_of(const std::string& module, KeptInputs& block) {
  const auto is = [&](const char* word) { return module.find(word) != std::string::npos; };
  if (is("mlp.down_proj") || is("mlp.c_proj")) {
    block.down = true;
  } else if (is("mlp.")) {
    block.mlp = true;
  } else if (!is("attn.c_proj") && !is("o_proj")) {  // attention itself keeps its result
    block.attention = true;
  }
}

std::vector<KeptInputs> kept_inputs(const Shapes& shapes, bool adapter_dropout) {
  std::vector<KeptInputs> blocks;
  std::vector<size_t> place(shapes.units.size(), 0);
  const auto reached = reached_units(shapes);
  for (size_t unit = 0; unit < shapes.units.size(); ++unit) {
    if (shapes.units[unit].root) continue;
    place[unit] = blocks.size();
    blocks.push_back({.reached = reached[unit]});
  }
  const auto dora = dora_modules(shapes);
  for (const auto& parameter : shapes.parameters) {
    if (shapes.units[static_cast<size_t>(parameter.unit)].root || !parameter.trainable) continue;
    auto& block = blocks[place[static_cast<size_t>(parameter.unit)]];
    if (is_magnitude(parameter)) block.adapters += parameter.shape[0];
    if (parameter.shape.size() < 2) continue;
    const bool is_a = parameter.name.ends_with(adapter::kLoraA);
    if (is_a) block.adapters += parameter.shape[0];
    if (adapter_dropout && parameter.adapter && dora.contains(adapted_module(parameter))) {
      if (is_a) block.adapters += parameter.shape[1];
    } else {
      keep_input_of(parameter.name, block);
    }
  }
  return blocks;
}

// Layers whose attention holds scores. Windows are fused on GPUs in 16 bits, and where a row is no
// longer than the window.
int64_t unfused_layers(const Dimensions& d, const MemoryQuestion& question) {
  if (d.unfused_attention) return d.layers;
  const bool fused = question.cuda && question.weight_bytes == 2;
  return question.tokens > d.window && !fused ? d.windowed_layers : 0;
}

// Of such a block: softmax in fp32 and what is left of it, for backward.
int64_t score_bytes(const Dimensions& d, const MemoryQuestion& question) {
  const int64_t scores = question.rows * d.heads * question.tokens * question.tokens;
  return scores * (std::max<int64_t>(4, question.weight_bytes) + question.weight_bytes);
}

}  // namespace

// What backward of one block reads: inputs of norms and projections, queries, keys, values and the
// attention's output, and the MLP's inner values (before and after the activation).
Activations activation_bytes(const Shapes& shapes, const Dimensions& d,
                             const MemoryQuestion& question) {
  const int64_t rows_tokens = question.rows * question.tokens;
  const int64_t inner = (d.gated ? 3 : 2) * d.inner;
  const int64_t full_block = 4 * d.channels + 2 * d.query_width + 2 * d.key_width + inner;
  int64_t all_blocks = 0, per_block = 0, reached = 0;
  for (const auto& block : kept_inputs(shapes, question.adapter_dropout)) {
    if (!block.reached) continue;
    const int64_t kept = full_block + block.adapters - (block.attention ? 0 : d.channels) -
                         (block.mlp ? 0 : d.channels) - (block.down ? 0 : d.inner);
    all_blocks += kept;
    per_block = std::max(per_block, kept);
    ++reached;
  }
  // Of offloaded inputs two are on the device: the block's, and those of the next one in backward.
  const bool offloads = question.recompute && question.offload_activations && question.cuda;
  const int64_t inputs = offloads ? std::min<int64_t>(reached, 2) : reached;
  const int64_t kept = question.recompute ? inputs * d.channels + per_block : all_blocks;
  const int64_t ends = 4 * d.channels;  // embedding, final norm, their gradients
  const int64_t unfused = unfused_layers(d, question);
  Activations result;
  result.head = head_bytes(d, question, head_training(shapes));
  int64_t received = 0;
  for (const auto& unit : unit_bytes(shapes, question)) {
    if (question.ranks > 1) received = std::max(received, unit.gradients);
  }
  result.unit = largest_block(shapes, question) + received + largest_unpacked(shapes, question);
  result.kept =
      question.weight_bytes * rows_tokens * (kept + ends) +
      (question.recompute ? std::min<int64_t>(1, unfused) : unfused) * score_bytes(d, question);
  if (offloads) result.host = question.weight_bytes * rows_tokens * reached * d.channels;
  result.formula = fmt::format(
      "{} bytes x {} rows x {} tokens x ({} + 4 x {} channels); one block keeps {} = 4 x {} + "
      "2 x {} queries + 2 x {} keys + {} x {} inner{}",
      question.weight_bytes, question.rows, question.tokens,
      question.recompute
          ? fmt::format("{} {} x {} + {}", inputs, offloads ? "inputs at a time" : "layers",
                        d.channels, per_block)
          : fmt::format("{} layers x {}", reached, per_block),
      d.channels, per_block, d.channels, d.query_width, d.key_width, d.gated ? 3 : 2, d.inner,
      per_block == full_block ? "" : ", less the inputs of frozen layers");
  if (unfused > 0) {
    result.formula +=
        fmt::format(" and, as attention is not fused in {} layers, {} rows x {} heads x {}² scores",
                    unfused, question.rows, d.heads, question.tokens);
  }
  return result;
}

int64_t step_peak(const FlatBytes& flat, const Activations& activations,
                  const MemoryQuestion& question) {
  if (question.stage >= 2 || question.micro_batches > 1) return flat.peak() + activations.peak();
  return flat.transient +
         std::max(flat.weights + flat.states + activations.peak(), flat.held() + activations.unit);
}

}  // namespace skein::plan
