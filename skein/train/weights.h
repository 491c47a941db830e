// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The weights of a model folder, and of an adapter beside it, read into a model's parameters.

#include <map>
#include <string>
#include <vector>

#include "skein/checkpoint/new_rows.h"
#include "skein/checkpoint/reader.h"
#include "skein/core/dtype.h"
#include "skein/plan/hf_config.h"
#include "skein/tensor/parameter_table.h"
#include "skein/tensor/tensor_slice.h"

namespace skein::train {

using Slices = std::vector<tensor::TensorSlice>;

// Of the model's own parameters; the slices of adapters are passed over. Where the folder's head is
// its embedding and the model has a head beside it, to train it alone, both begin there.
class BaseWeights {
 public:
  // `architecture` is the folder's, or has more rows of vocabulary than that. Throws UserError
  // where there are no weights.
  BaseWeights(const fs::path& folder, const plan::HfConfig& architecture,
              const tensor::ParameterTable& table);

  // As checkpoint::Reader::load().
  void load(Slices slices) const;
  // False: the model scores, and the files have no head for it. load() leaves it as it is.
  bool has_score() const { return !lacks_score_; }
  // Do the files hold tensors of another type than the model's?
  bool differ_in_dtype() const;

 private:
  const std::string& name_of(const std::string& parameter) const;
  // Of a weight in 4 bits: all of it is read in pieces and quantised, the slice's bytes stay.
  void load_packed(const tensor::TensorSlice& slice) const;

  checkpoint::Reader reader_;
  checkpoint::LoadOptions options_;
  checkpoint::NewRows rows_;
  std::string head_, embedding_;  // a head that begins as the embedding; else empty
  std::map<std::string, tensor::PackedShape> packed_;  // by name
  bool lacks_score_ = false;
};

// Of PEFT's folder: all that trains, and what it holds of the base's embedding and head. Throws one
// UserError for all tensors that are missing, unexpected or of another shape.
void load_adapter(const fs::path& folder, const tensor::ParameterTable& table, Slices slices);
// Of it, what the base has too and does not train: parameters, and the types that they are stored
// in.
std::map<std::string, DType> base_weights_in_adapter(const fs::path& folder,
                                                     const tensor::ParameterTable& table);

}  // namespace skein::train
