// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/memory_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "skein/core/amounts.h"

namespace skein::plan {
namespace {

// That of the flat layout: offsets and shards are multiples of it.
constexpr int64_t kAlignment = 128;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Padded elements of each unit's buffer: a multiple of alignment x ranks.
std::vector<int64_t> unit_sizes(const Shapes& shapes, int64_t ranks) {
  std::vector<int64_t> sizes(shapes.units.size(), 0);
  for (const auto& parameter : shapes.parameters) {
    sizes[static_cast<size_t>(parameter.unit)] += round_up(parameter.memory_numel(), kAlignment);
  }
  for (auto& size : sizes) size = round_up(size, kAlignment * ranks);
  return sizes;
}

// What comes and goes during a step at stages 2 and 3, followed through it: a block's backward runs
// while the block before it in backward is being reduced and the next one is being gathered.
class Transients {
 public:
  Transients(const Shapes& shapes, const std::vector<int64_t>& sizes,
             const MemoryQuestion& question)
      : question_(question) {
    for (size_t unit = 0; unit < sizes.size(); ++unit) {
      if (!shapes.units[unit].root) {
        blocks_.push_back(sizes[unit]);
      } else {
        (blocks_.empty() ? first_root_ : last_root_) += sizes[unit];
      }
    }
  }

  int64_t peak() {
    const int64_t count = question_.micro_batches;
    micro_batch(/*held=*/0, /*is_last=*/count == 1);
    // Roots' gradients stay whole until the last micro-batch sends them.
    const int64_t held = first_root_ + last_root_;
    if (count > 2) micro_batch(held, /*is_last=*/false);
    if (count > 1) micro_batch(held, /*is_last=*/true);
    return peak_;
  }

 private:
  // `held`: root gradients of the micro-batches before. An untied head is sent first, while the
  // last block's gradient is made; each block's, while the next one's is; the first root unit last.
  void micro_batch(int64_t held, bool is_last) {
    const auto count = static_cast<int64_t>(blocks_.size());
    for (int64_t i = 0; i < count; ++i) see(block(i) + block(i + 1), held);  // forward
    const bool tied = last_root_ == 0;
    int64_t roots = std::max(held, tied ? first_root_ : last_root_);  // once the head is done
    see(block(count - 1), roots);
    for (int64_t i = count - 1; i >= 0; --i) {
      see(block(i) + block(i - 1), roots + block(i) + block(i + 1));
      if (is_last && i == count - 1) roots -= last_root_;
    }
    see(block(0), std::max(roots, first_root_ + (is_last ? 0 : last_root_)) + block(0));
  }

  int64_t block(int64_t index) const {
    const bool exists = index >= 0 && index < static_cast<int64_t>(blocks_.size());
    return exists ? blocks_[static_cast<size_t>(index)] : 0;
  }
  void see(int64_t gathered, int64_t gradients) {
    const int64_t weights = question_.stage >= 3 ? first_root_ + last_root_ + gathered : 0;
    peak_ =
        std::max(peak_, weights * question_.weight_bytes + gradients * question_.gradient_bytes);
  }

  MemoryQuestion question_;
  std::vector<int64_t> blocks_;             // padded elements
  int64_t first_root_ = 0, last_root_ = 0;  // before and behind the blocks
  int64_t peak_ = 0;
};

}  // namespace

FlatBytes flat_bytes(const Shapes& shapes, const MemoryQuestion& question) {
  const auto sizes = unit_sizes(shapes, question.ranks);
  const int64_t whole = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const int64_t shard = whole / question.ranks;
  FlatBytes bytes;
  bytes.weights = (question.stage >= 3 ? shard : whole) * question.weight_bytes;
  bytes.gradients = (question.stage >= 2 ? shard : whole) * question.gradient_bytes;
  bytes.states = (question.stage >= 1 ? shard : whole) * question.state_bytes;
  if (question.stage >= 2) bytes.transient = Transients(shapes, sizes, question).peak();
  return bytes;
}

namespace {

// Beside the activations, while the head's forward makes its gradients.
int64_t head_bytes(const Dimensions& d, const MemoryQuestion& question) {
  const int64_t tokens = question.rows * question.tokens,
                vocabulary = padded_head_rows(d.vocabulary);
  const int64_t narrow = question.weight_bytes, wide = std::max<int64_t>(4, narrow);
  const int64_t chunk_bytes = kLogitsBytes * (question.cuda ? kCudaChunkFactor : 1);
  const int64_t rows = std::clamp<int64_t>(chunk_bytes / (vocabulary * wide), 1, tokens);
  // The kernel works in the logits' place; the plain formula also holds the log-probabilities and
  // the gradient.
  const bool fused = question.cuda && narrow < 8;
  const int64_t d_weight = vocabulary * d.channels;
  int64_t logits = rows * vocabulary * (fused ? narrow : 2 * narrow + wide);
  if (d.capped_logits) logits += rows * vocabulary * narrow;
  // CPUs multiply wide copies of 16-bit weights and gradients.
  if (!question.cuda && narrow < wide) logits += (d_weight + rows * vocabulary) * wide;
  // At the end the wide sum is rounded to the weights' 16 bits.
  const int64_t rounded = narrow < wide ? d_weight * narrow : 0;
  const int64_t d_hidden = tokens * d.channels * narrow + 2 * rows * d.channels * wide;
  return std::max(logits, rounded) + d_weight * wide + d_hidden;
}

int64_t largest_block(const Shapes& shapes) {
  std::vector<int64_t> sizes(shapes.units.size(), 0);
  for (const auto& parameter : shapes.parameters) {
    const auto unit = static_cast<size_t>(parameter.unit);
    if (!shapes.units[unit].root) sizes[unit] += parameter.numel();
  }
  return sizes.empty() ? 0 : *std::ranges::max_element(sizes);
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
  const int64_t per_block = 4 * d.channels + 2 * d.query_width + 2 * d.key_width + inner;
  const int64_t kept =
      question.recompute ? d.layers * d.channels + per_block : d.layers * per_block;
  const int64_t ends = 4 * d.channels;  // embedding, final norm, their gradients
  const int64_t unfused = unfused_layers(d, question);
  Activations result;
  result.head = head_bytes(d, question);
  const auto sizes = unit_sizes(shapes, question.ranks);
  const int64_t received = question.ranks > 1 ? *std::ranges::max_element(sizes) : 0;
  result.unit = largest_block(shapes) * question.weight_bytes + received * question.gradient_bytes;
  result.kept =
      question.weight_bytes * rows_tokens * (kept + ends) +
      (question.recompute ? std::min<int64_t>(1, unfused) : unfused) * score_bytes(d, question);
  result.formula = fmt::format(
      "{} bytes x {} rows x {} tokens x ({} + 4 x {} channels); one block keeps {} = 4 x {} + "
      "2 x {} queries + 2 x {} keys + {} x {} inner",
      question.weight_bytes, question.rows, question.tokens,
      question.recompute ? fmt::format("{} layers x {} + {}", d.layers, d.channels, per_block)
                         : fmt::format("{} layers x {}", d.layers, per_block),
      d.channels, per_block, d.channels, d.query_width, d.key_width, d.gated ? 3 : 2, d.inner);
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
  return std::max(flat.weights + flat.states + activations.peak(), flat.held() + activations.unit);
}

std::string memory_shortage(int64_t per_rank, const MemoryQuestion& question,
                            const Available& available) {
  const auto needed = static_cast<double>(per_rank);
  const char* const remedy =
      "a smaller per_device_train_batch_size, gradient_checkpointing: true, a higher ZeRO stage "
      "over more ranks";
  if (question.cuda) {
    if (available.gpu == 0 || needed <= static_cast<double>(available.gpu)) return {};
    return fmt::format("a rank needs about {}, and the GPU has {}: {}",
                       shown_bytes(static_cast<uint64_t>(needed)), shown_bytes(available.gpu),
                       remedy);
  }
  const double all = needed * static_cast<double>(question.local_ranks);
  if (all <= static_cast<double>(available.host)) return {};
  return fmt::format("this machine's ranks together need about {}, and it has {}: {}",
                     shown_bytes(static_cast<uint64_t>(all)), shown_bytes(available.host), remedy);
}

}  // namespace skein::plan
