// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A language model as the rest of the program sees it: parameters, hidden states, and a head that
// runs in three ways; or, in place of that head, one that scores a text.
//
// Single-device code: no rank and no group. All compute goes through `units`, so whoever owns the
// parameters (a sharding, or nobody) decides when they are there. Works on the meta device.
// Not movable: the table knows the addresses of the model's tensors.

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/model/kv_cache.h"
#include "skein/model/layers.h"
#include "skein/ops/linear_cross_entropy.h"
#include "skein/plan/hf_config.h"
#include "skein/tensor/batch.h"
#include "skein/tensor/parameter_table.h"
#include "skein/tensor/tensor_slice.h"
#include "skein/tensor/units.h"

namespace skein::model {

// What is asked of the head beside log p of the targets.
struct HeadWish {
  double temperature = 1;  // of log p and entropy; mean logits are those before it
  bool entropy = false;
  bool mean_logit = false;  // of each token, over the vocabulary
  bool adapters = true;     // as StepKey
};

// fp32, or fp64 for float64 models; 0 where ignored. The last two have no gradient, and are
// undefined unless asked for.
struct TokenNumbers {
  at::Tensor log_probs, entropy{}, mean_logits{};
};

// B rows, T tokens, C channels, V vocabulary
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  tensor::ParameterTable& table() { return table_; }
  const tensor::ParameterTable& table() const { return table_; }

  // Hidden states after the final norm (B, T, C). Positions begin at 0 in every row, or in every
  // document of a run that continues no other. Prompts that are shared allow no random draws.
  // Forward and decode are each one tensor::ForwardPass.
  at::Tensor forward(const tensor::Batch& batch, const tensor::StepKey& key,
                     tensor::Units& units) const;

  // A cache for this model, without memory yet.
  KvCache make_cache() const;
  // Hidden states (B, T, C) of the tokens (B, T) of the pass that the cache was told of
  // (KvCache::begin), which it then holds too: T = 1, or B = 1. `lengths`: of the text of each row,
  // these tokens counted; for models that turn by length alone. Equal to forward over the whole
  // text, without dropout and without gradients, where no text has outgrown what the cache holds.
  at::Tensor decode(const at::Tensor& tokens, const KvCache& cache, tensor::Units& units,
                    std::span<const int64_t> lengths = {}) const;
  // Do rotations depend on how long a text is? Then a row of a pass holds tokens of one text.
  virtual bool turns_by_length() const { return false; }
  // A text that grows from `before` to `after` tokens has to be decoded again from its first one:
  // what the cache holds of it was made for shorter texts (longrope).
  virtual bool outgrows(int64_t /*before*/, int64_t /*after*/) const { return false; }

  // The longest row that the model was made for.
  virtual int64_t max_positions() const = 0;
  virtual int64_t vocab_size() const = 0;
  // Logits are cap · tanh(logit / cap); 0: no cap.
  virtual double logit_cap() const { return 0; }

  // The sum below over a batch's targets, each times `weight`. Tokens of a run of documents that
  // have no target never reach the head. `smoothing` is that of ops::HeadOptions.
  at::Tensor head_loss_sum(const at::Tensor& hidden, const tensor::Batch& batch, double weight,
                           tensor::Units& units, double smoothing = 0) const;
  // Sum of -log p(target), times `weights` (B, T) where defined -> float64 scalar. Never holds all
  // logits. Targets are those of Batch: the token that a position predicts, or kIgnore.
  at::Tensor head_loss_sum(const at::Tensor& hidden, const at::Tensor& targets,
                           const at::Tensor& weights, tensor::Units& units,
                           double smoothing = 0) const;
  // log p(target) (B, T), and what else is asked.
  TokenNumbers head_log_probs(const at::Tensor& hidden, const at::Tensor& targets,
                              tensor::Units& units, const HeadWish& wish = {}) const;
  // Of a batch's targets: (B, T), or of a run (n) at its places.
  TokenNumbers head_log_probs(const at::Tensor& hidden, const tensor::Batch& batch,
                              tensor::Units& units, const HeadWish& wish = {}) const;
  // All logits (B, T, V): for sampling and tests.
  at::Tensor head_logits(const at::Tensor& hidden, tensor::Units& units) const;

  // Does the model score texts? Then it has head_scores() and none of the heads above.
  bool has_scores() const { return score_weight() != nullptr; }
  // A number for each of the tokens at `places` (n) of hidden (B, T, C) taken as one row -> (n),
  // fp32, or fp64 for float64 models.
  at::Tensor head_scores(const at::Tensor& hidden, const at::Tensor& places,
                         tensor::Units& units) const;

  // Does something follow from the weights that StandingWeights keep?
  bool has_magnitudes() const { return !dora_.empty(); }
  // The linear layers of its blocks, in the order of forward.
  const std::vector<TappedLinear>& tapped_linears() const { return linears_; }

  // Puts DoRA's first magnitudes, which follow from the weights and adapters as they are, into
  // those of `slices` that are theirs. One pass without gradients; nothing where there is no DoRA.
  void fill_magnitudes(std::span<const tensor::TensorSlice> slices, tensor::Units& units) const;

 protected:
  // forward, inside its pass.
  virtual at::Tensor hidden_states(const tensor::Batch& batch, const tensor::StepKey& key,
                                   tensor::Units& units) const = 0;
  // decode, once it is known where the tokens stand.
  struct NextTokens {
    at::Tensor tokens, positions;      // (B, T)
    std::span<const int64_t> lengths;  // as decode's
  };
  virtual at::Tensor decode_at(const NextTokens& next, const KvCache& cache,
                               tensor::Units& units) const = 0;
  virtual KvShape kv_shape() const = 0;
  virtual int head_unit() const = 0;
  virtual const at::Tensor& head_weight() const = 0;  // (V, C) and perhaps padded rows
  virtual const std::optional<Lora>& head_lora() const = 0;
  // (1, C); null: the head gives logits.
  virtual const at::Tensor* score_weight() const { return nullptr; }

  tensor::ParameterTable table_;

 private:
  friend std::unique_ptr<Model> build(const plan::HfConfig& config, const BuildOptions& options);
  friend class StandingWeights;

  // Of hidden (…, C).
  ops::HeadProduct head_product(const at::Tensor& hidden, bool adapters = true) const;

  std::vector<DoraLayer> dora_;
  std::vector<TappedLinear> linears_;
};

// While it lives nobody changes the model's weights: what follows from them alone (the lengths of
// DoRA's rows) is computed once, not for every token. For generation.
class [[nodiscard]] StandingWeights {
 public:
  explicit StandingWeights(const Model& model);
  ~StandingWeights();
  StandingWeights(const StandingWeights&) = delete;
  StandingWeights& operator=(const StandingWeights&) = delete;

 private:
  const Model& model_;
};

// The table is filled, its slots are empty: materialise() or a sharding fills them. Throws
// UserError when an adapter's targets, or modules that are to train, do not exist.
std::unique_ptr<Model> build(const plan::HfConfig& config, const BuildOptions& options = {});

// A leaf for a parameter, not yet initialised but for its padding, which is zero.
at::Tensor make_leaf(const tensor::Parameter& parameter, at::Device device);
// One for each parameter of a table. Those of a unit lie behind each other where nothing forbids
// it, as in flat memory.
std::vector<at::Tensor> make_leaves(const tensor::ParameterTable& table, at::Device device);
// What files know of a leaf, or of its gradient: the shape without padded rows.
at::Tensor without_padding(const tensor::Parameter& parameter, const at::Tensor& leaf);

// Puts whole leaves, with their first values, into the slots. For models that nobody shards.
void materialise(const tensor::ParameterTable& table, at::Device device, uint64_t seed);

}  // namespace skein::model
