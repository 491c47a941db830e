// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "skein/core/error.h"
#include "skein/core/json.h"

static_assert(std::endian::native == std::endian::little, "tensor bytes are stored as they are");

namespace skein::checkpoint {
namespace {

// Reads the one shape of text that a header may have. A document tree would let a hostile header
// allocate many times its own size, so nothing is kept that is not asked for.
class HeaderReader final : public JsonEvents {
 public:
  HeaderReader(std::string_view file, Header& header) : file_(file), header_(header) {}

  bool start_object(size_t) override {
    if (at_ == At::kStart) return move_to(At::kRoot);
    if (at_ != At::kRoot || key_.empty()) refuse("an object where none belongs");
    if (key_ == "__metadata__") return move_to(At::kMetadata);
    header_.tensors.push_back({.name = key_});
    seen_dtype_ = seen_shape_ = seen_offsets_ = false;
    return move_to(At::kTensor);
  }

  bool end_object() override {
    if (at_ == At::kTensor && !(seen_dtype_ && seen_shape_ && seen_offsets_)) {
      refuse("dtype, shape or data_offsets is absent");
    }
    key_.clear();
    return move_to(at_ == At::kRoot ? At::kEnd : At::kRoot);
  }

  bool key(string_t& text) override {
    if (text.size() > kMaxNameBytes) {
      refuse(fmt::format("a name of {} bytes, more than {}", text.size(), kMaxNameBytes));
    }
    if (at_ == At::kTensor) {
      field_ = text;
    } else if (at_ == At::kMetadata) {
      field_ = text;
      if (header_.metadata.contains(text)) refuse("duplicate key '" + text + "' in __metadata__");
    } else {
      begin_entry(text);
    }
    return true;
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadata) {
      header_.metadata[field_] = text;
      return true;
    }
    if (at_ != At::kTensor || field_ != "dtype") refuse("a string where none belongs");
    take_once(seen_dtype_);
    const auto dtype = dtype_from_name(text);
    if (!dtype) refuse("dtype '" + text + "' is not supported");
    header_.tensors.back().dtype = *dtype;
    return true;
  }

  bool start_array(size_t) override {
    if (at_ == At::kTensor && field_ == "shape") {
      take_once(seen_shape_);
      return move_to(At::kShape);
    }
    if (at_ == At::kTensor && field_ == "data_offsets") {
      take_once(seen_offsets_);
      num_offsets_ = 0;
      return move_to(At::kOffsets);
    }
    refuse("an array where none belongs");
  }

  bool end_array() override {
    if (at_ == At::kOffsets && num_offsets_ != 2) refuse("data_offsets does not hold two numbers");
    return move_to(At::kTensor);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::kShape) {
      add_dimension(value);
    } else if (at_ == At::kOffsets && num_offsets_ < 2) {
      auto& tensor = header_.tensors.back();
      (num_offsets_++ == 0 ? tensor.begin : tensor.end) = value;
    } else {
      refuse("a number where none belongs");
    }
    return true;
  }

  bool number_integer(number_integer_t value) override {
    refuse(fmt::format("the negative number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    refuse(fmt::format("{} is not an unsigned 64-bit integer", text));
  }
  bool null() override { refuse("a null where none belongs"); }
  bool boolean(bool) override { refuse("a boolean where none belongs"); }

 private:
  enum class At { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool move_to(At place) {
    at_ = place;
    return true;
  }

  void begin_entry(const std::string& name) {
    key_.clear();
    if (name.empty()) refuse("a tensor without a name");
    if (name.find_first_of("\r\n") != std::string::npos) refuse("a name of several lines");
    if (names_.size() > kMaxTensors) refuse(fmt::format("more than {} tensors", kMaxTensors));
    if (!names_.insert(name).second) refuse("the name '" + name + "' is there twice");
    key_ = name;
  }

  void take_once(bool& seen) {
    if (seen) refuse("'" + field_ + "' is there twice");
    seen = true;
  }

  void add_dimension(uint64_t value) {
    auto& shape = header_.tensors.back().shape;
    if (shape.size() == kMaxDimensions)
      refuse(fmt::format("more than {} dimensions", kMaxDimensions));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      refuse(fmt::format("dimension {} is too large", value));
    }
    shape.push_back(value);
  }

  [[noreturn]] void refuse(const std::string& why) const {
    const std::string tensor = key_.empty() ? "" : "tensor '" + key_ + "': ";
    throw IoError(fmt::format("{}: {}{}", file_, tensor, why));
  }

  std::string_view file_;
  Header& header_;
  At at_ = At::kStart;
  std::string key_;    // entry of the root object; empty between entries
  std::string field_;  // key inside it
  bool seen_dtype_ = false, seen_shape_ = false, seen_offsets_ = false;
  int num_offsets_ = 0;
  std::unordered_set<std::string> names_;
};

// The tensors, by position, must tile the data section.
void check_places(Header& header, uint64_t data_bytes, std::string_view file) {
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t position = 0;
  for (const auto& tensor : header.tensors) {
    const auto bytes = byte_count(tensor.shape, tensor.dtype);
    const auto refuse = [&](const std::string& why) {
      throw IoError(fmt::format("{}: tensor '{}' (shape [{}], {}, data_offsets [{}, {}]): {}", file,
                                tensor.name, fmt::join(tensor.shape, ", "),
                                dtype_name(tensor.dtype), tensor.begin, tensor.end, why));
    };
    if (!bytes) refuse("the shape does not fit 64 bits");
    if (tensor.begin > tensor.end) refuse("it ends before it begins");
    if (tensor.end > data_bytes) refuse(fmt::format("the data section ends at {}", data_bytes));
    if (tensor.end - tensor.begin != *bytes) refuse(fmt::format("it needs {} bytes", *bytes));
    if (tensor.begin < position) refuse("it overlaps the tensor before it");
    if (tensor.begin > position) refuse(fmt::format("a gap before it begins at {}", position));
    position = tensor.end;
  }
  if (position != data_bytes) {
    throw IoError(fmt::format("{}: {} bytes after the last tensor", file, data_bytes - position));
  }
}

// The first bytes of what torch.save writes: a ZIP archive, or a pickle of protocol 2 to 5.
bool looks_like_pickle(uint64_t first_bytes) {
  const auto first = static_cast<uint32_t>(first_bytes);
  return first == 0x04034b50 || ((first & 0xff) == 0x80 && (first >> 8 & 0xff) - 2 <= 3);
}

}  // namespace

std::optional<uint64_t> element_count(const std::vector<uint64_t>& shape) {
  uint64_t count = 1;
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(count, dimension, &count)) return std::nullopt;
  }
  return count;
}

std::optional<uint64_t> byte_count(const std::vector<uint64_t>& shape, DType dtype) {
  auto count = element_count(shape);
  if (!count || __builtin_mul_overflow(*count, dtype_bytes(dtype), &*count)) return std::nullopt;
  return count;
}

Header parse_header(std::string_view json, uint64_t data_bytes, std::string_view file) {
  Header header;
  if (json.empty() || json.front() != '{') {
    throw IoError(fmt::format("{}: the header does not begin with '{{'", file));
  }
  HeaderReader reader(file, header);
  try {
    walk_json(json, {.bytes = kMaxHeaderBytes}, reader);
  } catch (const JsonError& error) {
    throw IoError(
        fmt::format("{}: the header is not JSON at byte {}: {}", file, error.byte, error.what()));
  }
  header.data_begin = sizeof(uint64_t) + json.size();
  check_places(header, data_bytes, file);
  return header;
}

Header read_header(const File& file, std::string_view name) {
  const uint64_t size = file.size();
  uint64_t length = 0;
  if (size < sizeof(length)) {
    throw IoError(fmt::format("{}: {} bytes are too few for a safetensors file", name, size));
  }
  file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > std::min(kMaxHeaderBytes, size - sizeof(length))) {
    if (looks_like_pickle(length)) {
      throw IoError(fmt::format(
          "{}: a pickle (torch.save), not safetensors; reading one would run the code in it, so it "
          "is not read. Save the weights with safetensors.torch.save_file",
          name));
    }
    throw IoError(fmt::format("{}: header length {} in a file of {} bytes (limit {})", name, length,
                              size, kMaxHeaderBytes));
  }
  std::string json(length, '\0');
  file.read_at(sizeof(length), std::as_writable_bytes(std::span(json)));
  return parse_header(json, size - sizeof(length) - length, name);
}

std::string build_header(std::vector<TensorEntry> entries, std::vector<PlacedTensor>& tensors,
                         const Metadata& metadata) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  auto json = fmt::format(R"({{"__metadata__":{})", nlohmann::json(metadata).dump());
  uint64_t position = 0;
  tensors.clear();
  for (auto& entry : entries) {
    const auto bytes = byte_count(entry.shape, entry.dtype);
    SKEIN_CHECK(bytes.has_value(), "shape of " + entry.name);
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        nlohmann::json(entry.name).dump(), dtype_name(entry.dtype),
                        fmt::join(entry.shape, ","), position, position + *bytes);
    tensors.push_back(
        {std::move(entry.name), entry.dtype, std::move(entry.shape), position, position + *bytes});
    position += *bytes;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  std::string header(sizeof(length), '\0');
  std::memcpy(header.data(), &length, sizeof(length));
  return header + json;
}

}  // namespace skein::checkpoint
