// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/pt_writer.h"

#include <fmt/format.h>

#include "skein/convert/float_values.h"
#include "skein/core/error.h"
#include "skein/report/checksum.h"

namespace skein::gradient_features {
namespace {

constexpr std::string_view kByteOrder = "little", kVersion = "3\n";
enum Part : size_t { kPickle, kOrder, kData, kVersionPart };

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A number, by the shortest opcode; no number here is negative.
std::string pickled(int64_t value) {
  const auto little_endian = [&](int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
    return text;
  };
  if (value < 1 << 8) return "K" + little_endian(1);
  if (value < 1 << 16) return "M" + little_endian(2);
  if (value < int64_t{1} << 31) return "J" + little_endian(4);
  return std::string("\x8a\x08") + little_endian(8);
}

std::string pickled(std::string_view text) {
  std::string out = "X";
  for (int i = 0; i < 4; ++i) out += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return out + std::string(text);
}

std::string pickled_tuple(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) out += pickled(value);
  return out + "t";
}

int64_t count(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

std::vector<int64_t> strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) out[i - 1] = out[i] * shape[i];
  return out;
}

// torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), where
// the storage is a persistent id: ("storage", type, key, "cpu", elements).
std::string pickle_of(DType dtype, const std::vector<int64_t>& shape) {
  std::string out =
      "\x80\x02"
      "ctorch._utils\n_rebuild_tensor_v2\n((";
  out += pickled("storage");
  out += fmt::format("ctorch\n{}\n", dtype == DType::kF16 ? "HalfStorage" : "FloatStorage");
  out += pickled("0") + pickled("cpu") + pickled(count(shape)) + "tQ";
  out += pickled(int64_t{0}) + pickled_tuple(shape) + pickled_tuple(strides(shape));
  return out +
         "\x89"
         "ccollections\nOrderedDict\n)RtR.";
}

ZipLayout layout_of(const fs::path& path, std::string_view pickle, DType dtype,
                    const std::vector<int64_t>& shape) {
  const auto root = path.stem().string() + "/";
  const auto bytes = static_cast<uint64_t>(count(shape)) * dtype_bytes(dtype);
  return lay_out_zip({{root + "data.pkl", pickle.size()},
                      {root + "byteorder", kByteOrder.size()},
                      {root + "data/0", bytes},
                      {root + "version", kVersion.size()}});
}

}  // namespace

PtWriter::PtWriter(const fs::path& path, DType dtype, const std::vector<int64_t>& shape)
    : dtype_(dtype),
      pickle_(pickle_of(dtype, shape)),
      layout_(layout_of(path, pickle_, dtype, shape)),
      file_(path),
      elements_(file_.file(), layout_.entries[kData].data_begin) {
  SKEIN_CHECK(dtype == DType::kF32 || dtype == DType::kF16, "the type of a .pt file");
}

void PtWriter::append(std::span<const float> values) {
  auto bytes = std::as_bytes(values);
  if (dtype_ != DType::kF32) {
    rounded_.resize(values.size() * dtype_bytes(dtype_));
    convert::from_floats(values, dtype_, rounded_);
    bytes = rounded_;
  }
  const auto& data = layout_.entries[kData];
  SKEIN_CHECK(bytes.size() <= data.size - bytes_done_, "more elements than announced");
  checksum_ = report::crc32(as_text(bytes), checksum_);
  elements_.append(bytes);
  bytes_done_ += bytes.size();
}

void PtWriter::commit() {
  SKEIN_CHECK(bytes_done_ == layout_.entries[kData].size, "fewer elements than announced");
  elements_.finish();
  layout_.entries[kData].checksum = checksum_;
  const auto put = [&](uint64_t offset, std::string_view text) {
    file_.file().write_at(offset, std::as_bytes(std::span(text)));
  };
  const auto put_part = [&](Part part, std::string_view content) {
    layout_.entries[part].checksum = report::crc32(content);
    put(layout_.entries[part].data_begin, content);
  };
  put_part(kPickle, pickle_);
  put_part(kOrder, kByteOrder);
  put_part(kVersionPart, kVersion);
  for (const auto& entry : layout_.entries) put(entry.begin, local_header(entry));
  put(layout_.directory_begin, directory(layout_));
  file_.commit();
}

uint64_t pt_file_bytes(const fs::path& path, DType dtype, const std::vector<int64_t>& shape) {
  return layout_of(path, pickle_of(dtype, shape), dtype, shape).size();
}

}  // namespace skein::gradient_features
