// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/gemma.h"

#include <cmath>

namespace skein::plan {
namespace {

std::unique_ptr<Decoder> read_gemma(const ConfigReader& reader, int64_t vocabulary,
                                    int64_t positions) {
  auto decoder = std::make_unique<Decoder>();
  decoder->vocabulary = vocabulary;
  decoder->channels = 2304;
  decoder->inner = 9216;
  decoder->layers = 26;
  decoder->heads = 8;
  decoder->key_heads = 4;
  decoder->head_dim = 256;
  decoder->positions = positions;
  decoder->activation = Activation::kGeluTanh;
  decoder->tied_head = true;
  decoder->norms_add_one = true;
  decoder->norms_outputs = true;
  read_decoder(reader, *decoder);
  decoder->embedding_scale = std::sqrt(static_cast<double>(decoder->channels));
  reader.read("attention_bias", decoder->query_key_value_bias);
  decoder->attention_out_bias = decoder->query_key_value_bias;
  double scalar = 256;
  reader.read_positive("query_pre_attn_scalar", scalar);
  decoder->score_scale = std::pow(scalar, -0.5);
  bool bidirectional = false;
  reader.read("use_bidirectional_attention", bidirectional);
  if (bidirectional) reader.fail("use_bidirectional_attention is not supported");
  return decoder;
}

// Of every `period` layers all but the last slide.
void read_gemma_windows(const ConfigReader& reader, int64_t period, Decoder& decoder) {
  std::optional<int64_t> window = 4096;
  reader.read_or_none("sliding_window", window);
  const auto slides = [period](int64_t layer) { return (layer + 1) % period != 0; };
  read_windows(reader, window, slides, decoder);
}

void read_gemma3_rope(const ConfigReader& reader, Decoder& decoder) {
  RopeContext global{
      .theta = 1000000, .head_dim = decoder.head_dim, .positions = decoder.positions};
  RopeContext local{.head_dim = decoder.head_dim, .positions = decoder.positions};
  reader.read_positive("rope_local_base_freq", local.theta);
  decoder.window_rope = {
      .theta = local.theta, .channels = decoder.head_dim, .original_positions = decoder.positions};
  const auto both = reader.object("rope_parameters");
  if (!both || reader.has("rope_scaling")) {
    decoder.rope = read_rope(reader, global);  // a plain object is that of full attention
    return;
  }
  reader.read_positive("rope_theta", global.theta);
  const auto full = both->object("full_attention"), sliding = both->object("sliding_attention");
  if (!full || !sliding) {
    both->fail("expected full_attention and sliding_attention, each with its rope_type");
  }
  decoder.rope = read_rope_object(*full, global);
  decoder.window_rope = read_rope_object(*sliding, local);
}

}  // namespace

std::unique_ptr<Architecture> read_gemma2(const ConfigReader& reader) {
  auto decoder = read_gemma(reader, 256000, 8192);
  read_gemma_windows(reader, 2, *decoder);
  decoder->score_cap = 50;
  decoder->logit_cap = 30;
  reader.read_or_none("attn_logit_softcapping", decoder->score_cap);
  reader.read_or_none("final_logit_softcapping", decoder->logit_cap);
  decoder->rope = decoder->window_rope =
      read_rope(reader, {.head_dim = decoder->head_dim, .positions = decoder->positions});
  return decoder;
}

std::unique_ptr<Architecture> read_gemma3_text(const ConfigReader& reader) {
  auto decoder = read_gemma(reader, 262208, 131072);
  decoder->query_key_norms = true;
  int64_t period = 6;
  reader.read("sliding_window_pattern", period);  // of older files
  read_gemma_windows(reader, period, *decoder);
  if (reader.has("attn_logit_softcapping")) {
    reader.fail("attn_logit_softcapping is not supported: transformers leaves it out in gemma3");
  }
  reader.read_or_none("final_logit_softcapping", decoder->logit_cap);
  read_gemma3_rope(reader, *decoder);
  // Its files count positions that linear has stretched.
  if (decoder->rope.type == RopeType::kLinear) {
    decoder->rope.original_positions =
        static_cast<int64_t>(static_cast<double>(decoder->positions) / decoder->rope.factor);
  }
  return decoder;
}

}  // namespace skein::plan
