// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Are the tensors of a model folder those of the model? Names and shapes alone are looked at.

#include <string>
#include <vector>

#include "skein/checkpoint/files/model_files.h"

namespace skein::checkpoint {

struct LoadOptions {
  // All tensors of the model, when the slices of this rank do not name them all: so every rank
  // finds what is missing or of another shape, not only the one whose slice it is. Types may
  // differ.
  std::vector<TensorEntry> tensors;
  // The head shares the embedding's weights: lm_head.weight may be in the files and is not read.
  bool tied_head = false;
  // Weights of others: base prefixes (transformer., model.) may be added or absent, and GPT-2's
  // mask buffers are passed over. Off: names are exact.
  bool foreign = true;
  bool adapter = false;  // the files are an adapter's: for messages
};

// The stored tensor that `name` means; null when there is none.
const StoredTensor* find_tensor(const ModelFiles& files, const std::string& name, bool foreign);

// Throws one UserError for all of options.tensors that are missing or of another shape, and for
// what the files hold besides.
void require_match(const ModelFiles& files, const LoadOptions& options);

}  // namespace skein::checkpoint
