// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A decoder of Llama's kin in plain numbers: what its family's keys and defaults come to.
//
// Blocks of attention and a gated MLP, each behind an RMS norm, on a residual stream. Everything in
// which the families differ is a field here; shapes, memory, FLOPs and model/decoder.h read nothing
// else, so that none of them knows a family. Each family's file fills it (llama.h, gemma.h, …).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "skein/plan/families/architecture.h"
#include "skein/plan/families/config_reader.h"
#include "skein/plan/families/rope.h"

namespace skein::plan {

enum class Activation { kSilu, kGelu, kGeluTanh };

// The parameters that a block may have.
enum class Part {
  kInputNorm,
  kQuery,
  kKey,
  kValue,
  kQueryKeyValue,  // the three in one, rows behind each other
  kQueryNorm,      // of each head
  kKeyNorm,
  kAttentionOut,
  kAttentionOutNorm,  // of what attention adds to the stream
  kMlpNorm,
  kGate,
  kUp,
  kGateUp,  // both in one
  kDown,
  kDownNorm,  // of what the MLP adds to the stream
};

struct NamedPart {
  Part part = Part::kInputNorm;
  std::string name;         // of the module: .weight and .bias follow
  int64_t in = 0, out = 0;  // of a norm, `in` is 0
  bool bias = false;

  bool is_norm() const { return in == 0; }
};

struct Decoder final : Architecture {
  int64_t vocabulary = 0;
  int64_t channels = 0;
  int64_t inner = 0;  // of the MLP
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t key_heads = 0;  // each serves heads / key_heads heads
  int64_t head_dim = 0;
  int64_t positions = 0;  // max_position_embeddings

  // Of every layer: how many positions a token sees, its own among them. 0: all before it.
  std::vector<int64_t> windows;
  Rope rope;                     // of layers without a window
  Rope window_rope;              // of layers with one
  bool long_rope_alone = false;  // no other way to stretch positions
  bool query_key_norms = false;
  std::optional<double> score_scale;  // 1/√head_dim unless given
  std::optional<double> score_cap;    // scores become cap · tanh(score / cap)
  bool query_key_value_bias = false;
  bool attention_out_bias = false;
  bool fused_projections = false;  // q, k and v are one matrix, gate and up another

  Activation activation = Activation::kSilu;
  bool mlp_bias = false;

  double norm_epsilon = 1e-6;
  // Gemma's norms: weights are stored less one, and multiply before the result is rounded.
  bool norms_add_one = false;
  bool norms_outputs = false;  // what attention and MLP add to the stream is normalised too

  double embedding_scale = 1;
  std::optional<double> logit_cap;
  bool tied_head = false;
  bool scores = false;  // one number in place of the logits

  double attention_dropout = 0;
  double residual_dropout = 0;
  double initializer_range = 0.02;

  // Those of block `index`, in the order of forward, under Hugging Face's names.
  std::vector<NamedPart> parts(int64_t index) const;
  int64_t window(int64_t layer) const { return windows[static_cast<size_t>(layer)]; }

  Dimensions dimensions() const override;
  Shapes shapes() const override;
  std::shared_ptr<const Architecture> untied() const override;
  std::shared_ptr<const Architecture> scored() const override;
  std::string stretch_refusal() const override;
  std::string sharing_refusal(int64_t longest) const override;
  std::string training_advice() const override;

 private:
  int64_t plain_positions() const;
};

// Reads the keys that all these families share over the family's defaults: sizes, norms, dropout,
// activation, tie. `key_heads` and `head_dim` 0: absent keys follow from the others. RoPE and
// windows are the family's.
void read_decoder(const ConfigReader& reader, Decoder& decoder);

// Windows by layer_types where it is given, else by `slides`. No window: all layers see everything.
void read_windows(const ConfigReader& reader, std::optional<int64_t> window,
                  const std::function<bool(int64_t layer)>& slides, Decoder& decoder);

}  // namespace skein::plan
