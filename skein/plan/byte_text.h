// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Text without a tokenizer is bytes. Is that what the model is for?
//
// A vocabulary of up to 512 ids is one of bytes, perhaps padded. A larger one belongs to a
// tokenizer, and weights that were trained with it make nothing of bytes.

#include <string>

#include "skein/config/run_config.h"

namespace skein::plan {

// Throws UserError when weights would be loaded that were made with a tokenizer.
void check_byte_text(const config::ModelConfig& model);
// The same doubt about a model that starts from random weights, which may be; else "".
std::string byte_text_warning(const config::ModelConfig& model);

}  // namespace skein::plan
