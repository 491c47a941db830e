// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The gradient of each sample's own loss, the mean over its targets, without dropout.
//
// Where all chosen parameters belong to linear layers of blocks (adapters do), the samples of a run
// go through the model together and backward once: no summed gradient is formed, and a block's part
// is handed out while backward is in it. Others (DoRA, norms, embeddings, the head) take one sample
// at a time through plain autograd: slower by about the number of samples in a run.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "skein/model/model.h"
#include "skein/parallel/sharded.h"
#include "skein/tensor/host_batch.h"

namespace skein::gradient_features {

// Of all parameters those that the words mean: "full" all, "adapter" those of adapters, others by
// name or by parts of it between dots ("self_attn.q_proj", "norm"). In the table's order. Throws
// UserError for a word that means none, with the name of a parameter, and for weights in 4 bits.
std::vector<std::string> choose_parameters(const tensor::ParameterTable& table,
                                           const std::vector<std::string>& words);

// Those of the parameters that belong to no linear layer of a block, or to one whose gradient is no
// sum over tokens (layer_gradients.h).
std::vector<std::string> untapped_parameters(const model::Model& model,
                                             const std::vector<std::string>& parameters);

// "model.norm.weight, lm_head.weight and 3 more".
std::string name_few(std::vector<std::string> names);

// Throws UserError where there are such: `who` ("--projection factorised") takes none of them, type
// `instead`.
void require_taps(const model::Model& model, const std::vector<std::string>& parameters,
                  const std::string& who, const std::string& instead);

class SampleGradients {
 public:
  // `sharded` holds the model's parameters for inference; both outlive this. `parameters` are names
  // of the table. `memory`: bytes of gradients that are formed at a time.
  SampleGradients(const model::Model& model, parallel::Sharded& sharded,
                  const std::vector<std::string>& parameters, int64_t memory);
  ~SampleGradients();
  SampleGradients(const SampleGradients&) = delete;
  SampleGradients& operator=(const SampleGradients&) = delete;

  // Those of the parameters because of which samples go one at a time; empty: they go together.
  // Requires whole parameters (no stage 3) where there are any.
  const std::vector<std::string>& untapped() const { return untapped_; }

  // That have a chosen parameter and a tap.
  int64_t num_layers() const { return std::ssize(tapped_); }

  // Part of the gradients of consecutive documents: (documents, elements), to be changed as the
  // caller likes.
  struct Part {
    std::string name;  // the parameter's
    at::Tensor rows;
    int64_t first_document = 0;
    int64_t first_element = 0;  // in the parameter as it lies in files
  };
  // False: no more of this run is wanted. Backward goes on without forming any, since other ranks
  // may wait for it.
  using Use = std::function<bool(const Part& part)>;
  // Every element of every chosen parameter once for every document, while it is wanted. `run` is a
  // run of documents, each with a target. Collective where parameters are sharded: every rank makes
  // the same number of calls.
  void compute(const tensor::HostBatch& run, const Use& use);

  // What every linear layer with a chosen parameter has seen of the run, while its parameters are
  // whole. Requires that nothing is untapped(). Collective as compute().
  using UseLayer = std::function<void(const model::TappedLinear& linear, const tensor::Tapped&)>;
  void compute_layers(const tensor::HostBatch& run, const UseLayer& use);

 private:
  void compute_together(const tensor::HostBatch& run, const Use& use);
  bool compute_one(const tensor::HostBatch& run, int64_t document, const Use& use);

  const model::Model& model_;
  parallel::Sharded& sharded_;
  int64_t memory_;
  std::set<std::string> chosen_;
  std::vector<std::string> untapped_;
  std::map<const tensor::Tap*, const model::TappedLinear*> tapped_;
  std::vector<const tensor::Parameter*> leaves_;  // of those that go one at a time
};

}  // namespace skein::gradient_features
