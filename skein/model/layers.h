// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What model families share: linear layers that can carry a LoRA adapter, how parameters enter the
// table, and what a forward pass draws its dropout from.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "skein/ops/attention.h"
#include "skein/ops/dropout.h"
#include "skein/ops/nf4.h"
#include "skein/plan/tuning.h"
#include "skein/tensor/batch.h"
#include "skein/tensor/parameter_table.h"
#include "skein/tensor/tap.h"
#include "skein/tensor/units.h"

namespace skein::model {

// PEFT's adapter of a module: scale · B · A beside its weight, in fp32 where the model is in 16
// bits. With DoRA the rows of the sum are brought to the lengths in `magnitude`.
struct Lora {
  at::Tensor a;          // (rank, in)
  at::Tensor b;          // (out, rank)
  at::Tensor magnitude;  // (out) of DoRA, or undefined
  double scale = 1;
  double dropout = 0;  // of its input
  int64_t layer = -1;  // the block that it belongs to; -1: none
  uint64_t site = 0;   // of the module: keys its dropout

  // While a model::StandingWeights lives: row_lengths(), once they have been asked for.
  struct Standing {
    bool on = false;
    at::Tensor lengths;
  };
  mutable Standing standing{};
};

struct Linear {
  at::Tensor weight;        // (out, in), or (in, out) when transposed; or the bytes of `nf4`
  at::Tensor bias;          // (out), or undefined
  bool transposed = false;  // GPT-2's Conv1D layout
  std::optional<Lora> lora;
  std::optional<ops::Nf4Matrix> nf4;  // the weight is in 4 bits
  mutable tensor::Tap tap{};
};

// Rows for tokens, or for positions.
struct Embedding {
  at::Tensor weight;         // (V, C), and perhaps padded rows
  std::optional<Lora> lora;  // its `in` is V, its `out` C
};

struct Draws;

at::Tensor linear(const Linear& layer, const at::Tensor& x,
                  const Draws& draws);  // (…, in) -> (…, out)
// Layers that share their input, an output for each.
std::vector<at::Tensor> linears(const std::vector<const Linear*>& layers, const at::Tensor& x,
                                const Draws& draws);
// (…) -> (…, C)
at::Tensor embed(const Embedding& table, const at::Tensor& tokens, bool adapters = true);

// What DoRA divides by: the lengths of the rows of W + scale · B · A, W (out, in). Constant to
// autograd, as in PEFT.
at::Tensor row_lengths(const at::Tensor& weight, const Lora& lora);
// magnitude / length of each row, in the magnitude's dtype: its changes are small, and 16 bits
// would lose them.
at::Tensor dora_factor(const at::Tensor& weight, const Lora& lora);

struct BuildOptions {
  at::ScalarType dtype = at::kFloat;  // of all parameters but adapters, which have 32 bits at least
  plan::Tuning tuning{};              // what trains, and which adapters there are
  double embedding_noise = 0;         // NEFTune's alpha
};

// Where DoRA's magnitudes come from: of whole leaves, while their unit is there.
struct DoraLayer {
  std::string name;  // of the magnitude
  int unit = 0;
  const Lora* lora = nullptr;
  std::function<at::Tensor()> lengths;
};

// A layer that can be listened to.
struct TappedLinear {
  std::string name;  // the module's
  int unit = 0;
  const Linear* layer = nullptr;
};

// What a family's model is built from.
class Recipe {
 public:
  Recipe(const BuildOptions& options, const plan::TunedModel& tuned);

  const plan::Architecture& architecture() const { return *tuned_.architecture; }
  at::ScalarType dtype() const { return dtype_; }
  at::ScalarType adapter_dtype() const;
  double embedding_noise() const { return embedding_noise_; }
  bool trains(const std::string& parameter) const { return trainable_.contains(parameter); }
  bool packs(const std::string& parameter) const { return packed_.contains(parameter); }
  bool doubly_quantised() const { return doubly_quantised_; }
  const plan::LoraShape* adapter_of(const std::string& module) const;
  // Filled while the model is built.
  struct Found {
    std::vector<DoraLayer> dora;
    std::vector<TappedLinear> linears;  // in the order of forward
  };
  Found& found() const { return *found_; }

 private:
  at::ScalarType dtype_;
  double embedding_noise_;
  const plan::TunedModel& tuned_;  // outlives this
  std::unordered_set<std::string> trainable_, packed_;
  bool doubly_quantised_;
  std::shared_ptr<Found> found_;
};

struct LinearShape {
  int64_t in = 0, out = 0;
  bool bias = false;
  bool transposed = false;
  double deviation = 0.02;  // of the weight's first values
};

struct EmbeddingShape {
  int64_t rows = 0, columns = 0;
  double deviation = 0.02;
  bool head = false;  // it is the output head too: its rows are padded in memory
};

// Registers the parameters of one unit. Slots are remembered by address: structs must not move.
class UnitBuilder {
 public:
  // Adds the unit to the table. `recipe` must outlive the builder.
  static UnitBuilder root(tensor::ParameterTable& table, const std::string& name,
                          const Recipe& recipe);
  static UnitBuilder block(tensor::ParameterTable& table, const std::string& name, int index,
                           const Recipe& recipe);

  int unit() const { return unit_; }

  // `name` is the module's: those of its parameters and of its adapter follow from it.
  void add_linear(const std::string& name, const LinearShape& shape, Linear& layer);
  void add_embedding(const std::string& name, const EmbeddingShape& shape, Embedding& table);
  // The output head: of a tied one, whose weight is `tied`, its adapter alone.
  void add_head(const std::string& name, const EmbeddingShape& shape, Linear& head,
                const Embedding* tied = nullptr);
  // A head of one row.
  void add_score(const std::string& name, int64_t channels, double deviation, at::Tensor& weight);
  // A norm's weight (ones), and its bias (zeros) where there is one.
  void add_norm(const std::string& name, int64_t channels, at::Tensor& weight,
                at::Tensor* bias = nullptr);
  // Of a norm that multiplies by 1 + weight (zeros).
  void add_offset_norm(const std::string& name, int64_t channels, at::Tensor& weight);

 private:
  UnitBuilder(tensor::ParameterTable& table, int unit, int64_t layer, const Recipe& recipe)
      : table_(table), unit_(unit), layer_(layer), recipe_(recipe) {}

  tensor::Parameter& add(const std::string& name, std::vector<int64_t> shape, tensor::Init init,
                         at::Tensor& slot);
  // How a module's adapter looks: the sizes of its A and B, and its weight as (out, in).
  struct AdapterShape {
    int64_t in = 0, out = 0;
    bool embedding = false;
    std::function<at::Tensor()> weight;
  };
  void add_adapter(const std::string& name, const AdapterShape& shape, std::optional<Lora>& lora);
  // The weight of a linear layer, in 4 bits; `shape` as in files.
  void add_packed(const std::string& name, const std::vector<int64_t>& shape, double deviation,
                  Linear& layer);

  tensor::ParameterTable& table_;
  int unit_;
  int64_t layer_;  // of a block; -1: none
  const Recipe& recipe_;
};

// The random streams of one forward pass.
struct Draws {
  tensor::StepKey key;
  at::Tensor documents;                              // (B), or (N) of a run
  std::shared_ptr<const tensor::DocumentRun> run{};  // of the batch

  // `layer` counts blocks from 0; the embedding's is -1.
  ops::Dropout at(double probability, int64_t layer, ops::DropoutSite site) const;
  ops::Dropout at(const Lora& lora) const;
};

// How a block's attention gets from q (B, H, T, D), k and v (B, G, T, D) to (B, H, T, D): over the
// tokens themselves, or over a cache too.
using Attend =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// Over the tokens themselves: within each row of the batch, or within each document of a run.
Attend attend_within(const tensor::Batch& batch, const ops::AttentionOptions& options);

// Rows of a table (positions, C) for the tokens of a batch -> (T, C): positions begin at 0 in every
// row, or in every document of a run that continues no other.
at::Tensor position_rows(const Embedding& table, const tensor::Batch& batch, bool adapters);
// The most tokens that a document of the batch has, with those of the one that it continues.
int64_t longest_document(const tensor::Batch& batch);

// Runs a unit whose block has one output.
at::Tensor run_unit(tensor::Units& units, int unit, const tensor::Tensors& inputs,
                    std::function<at::Tensor(const tensor::Tensors&)> block);

}  // namespace skein::model
