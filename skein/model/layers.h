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
#include <vector>

#include "skein/ops/attention.h"
#include "skein/ops/dropout.h"
#include "skein/plan/tuning.h"
#include "skein/tensor/batch.h"
#include "skein/tensor/parameter_table.h"
#include "skein/tensor/units.h"

namespace skein::model {

// x · Aᵀ · Bᵀ · scale beside a frozen weight.
struct Lora {
  at::Tensor a;  // (rank, in)
  at::Tensor b;  // (out, rank)
  double scale = 1;
};

struct Linear {
  at::Tensor weight;        // (out, in), or (in, out) when transposed
  at::Tensor bias;          // (out), or undefined
  bool transposed = false;  // GPT-2's Conv1D layout
  std::optional<Lora> lora;
};

at::Tensor linear(const Linear& layer, const at::Tensor& x);  // (…, in) -> (…, out)
// Layers that share their input, an output for each.
std::vector<at::Tensor> linears(const std::vector<const Linear*>& layers, const at::Tensor& x);

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 8;
  // Module names, matched as PEFT does: equal, or a suffix after a dot ("q_proj").
  std::vector<std::string> targets{};
};

struct BuildOptions {
  at::ScalarType dtype = at::kFloat;  // of all parameters
  // Adapters on every block's targets, everything else frozen; with frozen_blocks, on those alone.
  std::optional<LoraOptions> lora{};
  std::vector<int>
      frozen_blocks{};    // these train nothing but their adapters; the rest trains fully
  plan::Tuning tuning{};  // what trains
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
  bool head = false;  // it is the output head, or that too: its rows are padded in memory
};

// Registers the parameters of one unit. Slots are remembered by address: structs must not move.
class UnitBuilder {
 public:
  // Adds the unit to the table. `options` must outlive the builder.
  static UnitBuilder root(tensor::ParameterTable& table, const std::string& name,
                          const BuildOptions& options);
  static UnitBuilder block(tensor::ParameterTable& table, const std::string& name, int index,
                           const BuildOptions& options);

  int unit() const { return unit_; }

  // `name` is the module's: .weight, .bias, .lora_A.weight, .lora_B.weight follow from it.
  void add_linear(const std::string& name, const LinearShape& shape, Linear& layer);
  void add_embedding(const std::string& name, const EmbeddingShape& shape, at::Tensor& weight);
  // A norm's weight (ones), and its bias (zeros) where there is one.
  void add_norm(const std::string& name, int64_t channels, at::Tensor& weight,
                at::Tensor* bias = nullptr);
  // Of a norm that multiplies by 1 + weight (zeros).
  void add_offset_norm(const std::string& name, int64_t channels, at::Tensor& weight);

 private:
  UnitBuilder(tensor::ParameterTable& table, int unit, at::ScalarType dtype)
      : table_(table), unit_(unit), dtype_(dtype) {}

  tensor::Parameter& add(const std::string& name, std::vector<int64_t> shape, tensor::Init init,
                         at::Tensor& slot);
  void add_lora(const std::string& name, const LinearShape& shape, Linear& layer);

  tensor::ParameterTable& table_;
  int unit_;
  at::ScalarType dtype_;
  const LoraOptions* lora_ = nullptr;  // of the targets; null: none
  bool frozen_ = false;                // what is added now does not train
};

// The random streams of one forward pass.
struct Draws {
  tensor::StepKey key;
  at::Tensor documents;                              // (B), or (N) of a run
  std::shared_ptr<const tensor::DocumentRun> run{};  // of the batch

  // `layer` counts blocks from 0; the embedding's is -1.
  ops::Dropout at(double probability, int64_t layer, ops::DropoutSite site) const;
};

// How a block's attention gets from q (B, H, T, D), k and v (B, G, T, D) to (B, H, T, D): over the
// tokens themselves, or over a cache too.
using Attend =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// Over the tokens themselves: within each row of the batch, or within each document of a run.
Attend attend_within(const tensor::Batch& batch, const ops::AttentionOptions& options);

// Rows of a table (positions, C) for the tokens of a batch -> (T, C): positions begin at 0 in every
// row, or in every document of a run.
at::Tensor position_rows(const at::Tensor& table, const tensor::Batch& batch);
// The most tokens that a document of the batch has.
int64_t longest_document(const tensor::Batch& batch);

// Runs a unit whose block has one output.
at::Tensor run_unit(tensor::Units& units, int unit, const tensor::Tensors& inputs,
                    std::function<at::Tensor(const tensor::Tensors&)> block);

}  // namespace skein::model
