// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/hf_config.h"

#include <fmt/format.h>

#include <optional>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/json.h"

namespace skein::plan {
namespace {

constexpr JsonLimits kLimits{.bytes = uint64_t{16} << 20, .depth = 64};
constexpr int64_t kMaxSize = int64_t{1} << 24;  // of any dimension: products stay below 2^63
constexpr int64_t kMaxLayers = 10000;           // each one is built

// config.json, and how its numbers are bounded.
class Reader {
 public:
  explicit Reader(JsonObject object) : object_(std::move(object)) {}

  bool has(const char* key) const { return object_.find(key) != nullptr; }
  std::optional<Reader> object(const char* key) const {
    auto inner = object_.object(key);
    return inner ? std::optional<Reader>(std::move(*inner)) : std::nullopt;
  }

  void read(const char* key, double& value) const { object_.read(key, value); }
  void read(const char* key, bool& value) const { object_.read(key, value); }
  void read(const char* key, std::string& value) const { object_.read(key, value); }
  void read(const char* key, int64_t& value, int64_t largest = kMaxSize) const {
    object_.read(key, value);
    if (has(key) && (value < 1 || value > largest)) {
      object_.refuse_value(key, fmt::format("between 1 and {}", largest));
    }
  }
  void read_probability(const char* key, double& value) const {
    object_.read(key, value);
    if (!(value >= 0 && value < 1)) object_.refuse_value(key, "at least 0 and below 1");
  }
  void read_positive(const char* key, double& value) const {
    object_.read(key, value);
    if (!(value > 0 && value < 1e30)) object_.refuse_value(key, "positive");
  }

  [[noreturn]] void fail(const std::string& why) const { object_.refuse(why); }

 private:
  JsonObject object_;
};

void require_divisible(const Reader& reader, int64_t value, int64_t divisor, const char* what) {
  if (value % divisor != 0)
    reader.fail(fmt::format("{}: {} is not a multiple of {}", what, value, divisor));
}

GptConfig read_gpt(const Reader& reader) {
  GptConfig config;
  reader.read("vocab_size", config.vocab_size);
  reader.read("n_positions", config.n_positions);
  reader.read("n_embd", config.n_embd);
  reader.read("n_layer", config.n_layer, kMaxLayers);
  reader.read("n_head", config.n_head);
  config.n_inner = 4 * config.n_embd;
  reader.read("n_inner", config.n_inner);
  reader.read_probability("embd_pdrop", config.embd_pdrop);
  reader.read_probability("attn_pdrop", config.attn_pdrop);
  reader.read_probability("resid_pdrop", config.resid_pdrop);
  reader.read_positive("layer_norm_epsilon", config.layer_norm_epsilon);
  reader.read_positive("initializer_range", config.initializer_range);
  reader.read("scale_attn_weights", config.scale_attn_weights);
  reader.read("scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  require_divisible(reader, config.n_embd, config.n_head, "n_embd / n_head");

  std::string activation = "gelu_new";
  reader.read("activation_function", activation);
  config.gelu_is_exact = activation == "gelu";
  if (!config.gelu_is_exact && activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    reader.fail(
        fmt::format("activation_function {} is not supported (gelu_new, gelu)", activation));
  }
  bool cross_attention = false;
  reader.read("add_cross_attention", cross_attention);
  if (cross_attention) reader.fail("add_cross_attention is not supported: decoder-only models are");
  return config;
}

// Values inside rope_parameters (transformers 5) or rope_scaling (4) win over a top-level
// rope_theta.
double read_rope_theta(const Reader& reader) {
  double theta = LlamaConfig{}.rope_theta;
  reader.read_positive("rope_theta", theta);
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = reader.object(key);
    if (!rope) continue;
    std::string type = "default";
    rope->read("type", type);
    rope->read("rope_type", type);
    if (type != "default") {
      rope->fail(fmt::format("rope_type {} is not supported yet: only default is", type));
    }
    rope->read_positive("rope_theta", theta);
    double rotated = 1;
    rope->read("partial_rotary_factor", rotated);
    if (rotated != 1) rope->fail("partial_rotary_factor other than 1 is not supported");
  }
  return theta;
}

void read_llama_heads(const Reader& reader, LlamaConfig& config) {
  reader.read("num_attention_heads", config.num_attention_heads);
  config.num_key_value_heads = config.num_attention_heads;
  reader.read("num_key_value_heads", config.num_key_value_heads);
  if (reader.has("head_dim")) {
    reader.read("head_dim", config.head_dim);
  } else {
    require_divisible(reader, config.hidden_size, config.num_attention_heads,
                      "hidden_size / num_attention_heads");
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  require_divisible(reader, config.num_attention_heads, config.num_key_value_heads,
                    "num_attention_heads / num_key_value_heads");
  require_divisible(reader, config.head_dim, 2, "head_dim (rotated in pairs)");
}

LlamaConfig read_llama(const Reader& reader) {
  LlamaConfig config;
  reader.read("vocab_size", config.vocab_size);
  reader.read("hidden_size", config.hidden_size);
  reader.read("intermediate_size", config.intermediate_size);
  reader.read("num_hidden_layers", config.num_hidden_layers, kMaxLayers);
  read_llama_heads(reader, config);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read_positive("rms_norm_eps", config.rms_norm_eps);
  config.rope_theta = read_rope_theta(reader);
  reader.read_probability("attention_dropout", config.attention_dropout);
  reader.read_positive("initializer_range", config.initializer_range);
  reader.read("attention_bias", config.attention_bias);
  reader.read("mlp_bias", config.mlp_bias);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);

  std::string activation = "silu";
  reader.read("hidden_act", activation);
  if (activation != "silu" && activation != "swish") {
    reader.fail(fmt::format("hidden_act {} is not supported: Llama's is silu", activation));
  }
  return config;
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& origin) {
  const Reader reader(JsonObject::parse(text, origin, kLimits));
  HfConfig config;
  config.source = text;
  reader.read("torch_dtype", config.dtype);
  reader.read("dtype", config.dtype);

  std::string type;
  reader.read("model_type", type);
  if (type == "gpt2") {
    config.architecture = read_gpt(reader);
  } else if (type == "llama") {
    config.architecture = read_llama(reader);
  } else if (type.empty()) {
    reader.fail("has no model_type: write \"model_type\": \"llama\" or \"gpt2\"");
  } else {
    reader.fail(fmt::format("model_type {} is not supported (llama, gpt2)", type));
  }
  return config;
}

HfConfig read_hf_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!fs::exists(path)) {
    throw UserError(fmt::format(
        "{}: no config.json there; model_name_or_path must name a Hugging Face model folder",
        folder.string()));
  }
  return parse_hf_config(read_file(path, kLimits.bytes), path.string());
}

bool has_tied_head(const HfConfig& config) {
  return std::visit([](const auto& a) { return a.tie_word_embeddings; }, config.architecture);
}

std::string hf_config_json(const HfConfig& config, const std::string& dtype) {
  auto json = nlohmann::ordered_json::parse(config.source);  // keys stay in their order
  // transformers 5 writes and reads dtype; 4 wrote torch_dtype. Keep the file's own word.
  const bool old_word = json.contains("torch_dtype");
  if (old_word) json["torch_dtype"] = dtype;
  if (!old_word || json.contains("dtype")) json["dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace skein::plan
