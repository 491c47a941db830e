// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/qwen.h"

namespace skein::plan {
namespace {

constexpr int64_t kHeadDimOfQwen3 = 128;

// transformers' own defaults, the same for both.
std::unique_ptr<Decoder> read_qwen(const ConfigReader& reader, int64_t head_dim) {
  auto decoder = std::make_unique<Decoder>();
  decoder->vocabulary = 151936;
  decoder->channels = 4096;
  decoder->inner = 22016;
  decoder->layers = 32;
  decoder->heads = 32;
  decoder->head_dim = head_dim;
  decoder->positions = 32768;
  decoder->key_heads = 32;
  read_decoder(reader, *decoder);

  bool uses_window = false;
  reader.read("use_sliding_window", uses_window);
  std::optional<int64_t> window = 4096;
  reader.read_or_none("sliding_window", window);
  if (!uses_window) window.reset();
  double first = 28;  // not a size: it may be 0
  reader.read("max_window_layers", first);
  const auto slides = [first](int64_t layer) { return static_cast<double>(layer) >= first; };
  read_windows(reader, window, slides, *decoder);
  decoder->rope = decoder->window_rope =
      read_rope(reader, {.head_dim = decoder->head_dim, .positions = decoder->positions});
  return decoder;
}

}  // namespace

std::unique_ptr<Architecture> read_qwen2(const ConfigReader& reader) {
  auto decoder = read_qwen(reader, 0);
  decoder->query_key_value_bias = true;
  return decoder;
}

std::unique_ptr<Architecture> read_qwen3(const ConfigReader& reader) {
  auto decoder = read_qwen(reader, kHeadDimOfQwen3);
  decoder->query_key_norms = true;
  reader.read("attention_bias", decoder->query_key_value_bias);
  decoder->attention_out_bias = decoder->query_key_value_bias;
  return decoder;
}

}  // namespace skein::plan
