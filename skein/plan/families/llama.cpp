// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/llama.h"

namespace skein::plan {

std::unique_ptr<Architecture> read_llama(const ConfigReader& reader) {
  auto decoder = std::make_unique<Decoder>();
  decoder->vocabulary = 32000;
  decoder->channels = 4096;
  decoder->inner = 11008;
  decoder->layers = 32;
  decoder->heads = 32;
  decoder->positions = 2048;
  read_decoder(reader, *decoder);
  reader.read("attention_bias", decoder->query_key_value_bias);
  decoder->attention_out_bias = decoder->query_key_value_bias;
  reader.read("mlp_bias", decoder->mlp_bias);
  decoder->rope =
      read_rope(reader, {.head_dim = decoder->head_dim, .positions = decoder->positions});
  return decoder;
}

}  // namespace skein::plan
