// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/mistral.h"

#include <algorithm>

namespace skein::plan {

std::unique_ptr<Architecture> read_mistral(const ConfigReader& reader) {
  auto decoder = std::make_unique<Decoder>();
  decoder->vocabulary = 32000;
  decoder->channels = 4096;
  decoder->inner = 14336;
  decoder->layers = 32;
  decoder->heads = 32;
  decoder->key_heads = 8;
  decoder->positions = 131072;
  read_decoder(reader, *decoder);
  std::optional<int64_t> window = 4096;
  reader.read_or_none("sliding_window", window);
  std::ranges::fill(decoder->windows, window.value_or(0));
  decoder->rope = decoder->window_rope =
      read_rope(reader, {.head_dim = decoder->head_dim, .positions = decoder->positions});
  return decoder;
}

}  // namespace skein::plan
