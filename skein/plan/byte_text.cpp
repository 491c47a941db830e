// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/byte_text.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/plan/hf_config.h"
#include "skein/text/text_codec.h"

namespace skein::plan {
namespace {

constexpr int64_t kMostByteIds = 512;

std::string doubt(const config::ModelConfig& model) {
  const auto note = text::bytes_note(model);
  if (note.empty()) return "";
  const auto vocabulary = read_hf_config(model.model_name_or_path).dimensions().vocabulary;
  if (vocabulary <= kMostByteIds) return "";
  return fmt::format("{}, 257 of the model's {} ids", note, vocabulary);
}

}  // namespace

void check_byte_text(const config::ModelConfig& model) {
  if (model.train_from_scratch) return;
  if (const auto found = doubt(model); !found.empty()) {
    throw UserError(
        found +
        "; give tokenizer_name_or_path=FOLDER, or save the tokenizer beside the weights "
        "(transformers: tok.save_pretrained(FOLDER)); tokenizer_name_or_path=bytes where bytes "
        "are meant");
  }
}

std::string byte_text_warning(const config::ModelConfig& model) {
  const auto found = model.train_from_scratch ? doubt(model) : "";
  return found.empty() ? "" : found + "; tokenizer_name_or_path=FOLDER names a tokenizer";
}

}  // namespace skein::plan
