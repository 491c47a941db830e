// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/phi3.h"

#include <algorithm>

namespace skein::plan {

std::unique_ptr<Architecture> read_phi3(const ConfigReader& reader) {
  auto decoder = std::make_unique<Decoder>();
  decoder->vocabulary = 32064;
  decoder->channels = 3072;
  decoder->inner = 8192;
  decoder->layers = 32;
  decoder->heads = 32;
  decoder->positions = 4096;
  decoder->norm_epsilon = 1e-5;
  decoder->fused_projections = true;
  decoder->long_rope_alone = true;
  read_decoder(reader, *decoder);
  reader.read_probability("resid_pdrop", decoder->residual_dropout);
  std::optional<int64_t> window;
  reader.read_or_none("sliding_window", window);
  std::ranges::fill(decoder->windows, window.value_or(0));
  int64_t original = 4096;
  reader.read("original_max_position_embeddings", original);
  decoder->rope = decoder->window_rope = read_rope(reader, {.head_dim = decoder->head_dim,
                                                            .positions = decoder->positions,
                                                            .partial = true,
                                                            .original_positions = original,
                                                            .always_long = true});
  return decoder;
}

}  // namespace skein::plan
