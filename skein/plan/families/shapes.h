// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which parameters will a model have? The same as model::build(), without LibTorch: for plans.
//
// A test holds both lists equal: names, shapes, order and units.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace skein::plan {

// Rows that the head's weight has in memory: with a multiple of 64 matrix products on a GPU take
// their fast path, five to eight times the speed of an odd number's.
constexpr int64_t padded_head_rows(int64_t vocabulary) { return (vocabulary + 63) / 64 * 64; }

// What the module is that a parameter belongs to.
enum class ModuleKind {
  kVector,            // a bias, a norm, a head of one row: no adapter is beside it
  kLinear,            // (out, in)
  kTransposedLinear,  // (in, out): GPT-2's
  kEmbedding,
  kHead,  // a linear layer, the last
};

struct ParameterShape {
  std::string name;
  std::vector<int64_t> shape;  // in files
  int unit = 0;
  bool decay = true;        // weight decay applies
  int64_t padded_rows = 0;  // in memory; 0: as in files
  ModuleKind kind = ModuleKind::kVector;
  bool trainable = true;
  bool adapter = false;  // beside a module: in fp32 where the model is in 16 bits
  // Frozen, and in memory these bytes, of 4 bits an element (core/nf4_layout.h); 0: it is not.
  int64_t packed_bytes = 0;

  int64_t numel() const;
  int64_t memory_numel() const;
};

struct UnitShape {
  std::string name;
  bool root = false;  // embeddings, final norm, head
};

struct Shapes {
  std::vector<UnitShape> units;
  std::vector<ParameterShape> parameters;
  // The head where the embedding's weight is its own: no parameter, yet adapters may be beside it.
  std::optional<ParameterShape> tied_head{};

  int64_t numel() const;
  int64_t trainable_numel() const;
  int64_t unit_numel(int unit) const;
};

// Lists the parameters of a decoder in the order of forward: the embedding's unit, a unit per
// block, and what follows the blocks. With a tied head the last belongs to the first unit ("root"),
// otherwise there are two ("embedding", "head").
class ShapeLister {
 public:
  explicit ShapeLister(bool tied_head, ModuleKind linear = ModuleKind::kLinear);

  // What is added from here on belongs to the next block, or to what follows the last one.
  void begin_block();
  void end_blocks();

  // A vector, or an embedding that is not the tokens'.
  void add(const std::string& name, std::vector<int64_t> shape);
  void add_embedding(const std::string& name, int64_t vocabulary, int64_t channels);
  // Nothing where the embedding is the head.
  void add_head(const std::string& name, int64_t vocabulary, int64_t channels);
  // A head of one row.
  void add_score(const std::string& name, int64_t channels);
  // NAME.weight and, unless `bias` is 0, NAME.bias of that size.
  void add_layer(const std::string& name, std::vector<int64_t> weight, int64_t bias);

  Shapes take() { return std::move(shapes_); }

 private:
  void begin_unit(std::string name, bool root);

  bool tied_head_;
  ModuleKind linear_;
  Shapes shapes_;
  int64_t num_blocks_ = 0;
  int unit_ = 0;  // that new parameters belong to
};

}  // namespace skein::plan
